# Reads ctest's JUnit file and prints "passed failed skipped". A cmocka binary counts by its cases, as
# far as it came; any other test counts as one. The reasons of skips ("skip: why" in the output) are
# appended to the file `reasons`.

/<testcase / {
    name = $0
    sub(/.*<testcase name="/, "", name)
    sub(/".*/, "", name)
    bad = / status="fail"/
    whole = / status="(notrun|disabled)"/
    ok = failures = skips = given = 0
}
/^(.*>)?\[       OK \]/ { ok++ }
/^(.*>)?\[  FAILED  \] [0-9]+ test\(s\)/ { failures = number_after("FAILED  ] ") }
/^(.*>)?\[  SKIPPED \] [0-9]+ test\(s\)/ { skips = number_after("SKIPPED ] ") }
/skip: / {
    why = $0
    sub(/.*skip: /, "", why)
    print name ": " why >>reasons
    given++
}
/<\/testcase>/ {
    if (bad && failures == 0) failures = 1
    if (!bad && !whole && ok == 0 && skips == 0) ok = 1
    if (whole && skips == 0) skips = 1
    if (skips > 0 && given == 0) print name ": no reason given" >>reasons
    passed += ok
    failed += failures
    skipped += skips
}
END { print passed + 0, failed + 0, skipped + 0 }

function number_after(text) { return substr($0, index($0, text) + length(text)) + 0 }
