# Rules that can be checked file by file, over src, models and include:
#   layers        includes point down; folders on one level never include each other, nor do the subfolders
#                 of a folder that are on one level
#   tags          a struct, enum or union tag of the library or of a header is defined once
#   homes         vendor libraries in src/kernel/dnn, POSIX headers where processes and files are
#   headers       #pragma once first; a source includes its own header before all others
#   banned calls  unsafe or hidden ways to do what base does; printing and exiting in the library
# Prints file:line: text for each breach; exits 1 when there was one.

BEGIN {
    n = split(list, t, "\n")
    for (i = 1; i <= n; i++) files[t[i]] = 1
    split("base 0 device 1 tensor 1 comm 2 data 2 mesh 3 graph 4 kernel 5 op 6 pass 6 onnx 7 plan 7 train 8 inspect 9 cli 10 models 10", t, " ")
    for (i = 1; i in t; i += 2) level[t[i]] = t[i + 1]
    # The subfolders of a folder, from the lowest level up: commas separate levels; a point is the folder itself.
    subfolders["comm"] = "reduce, codec, schedule, transport, engine, join, api, service, sync, table, bench"
    subfolders["graph"] = "., ops"
    subfolders["kernel"] = "., ref simd dnn, select"
    subfolders["data"] = "images safetensors, ., readers"
    subfolders["onnx"] = "import export, ."
    subfolders["pass"] = "., layout"
    subfolders["plan"] = "., program"
    subfolders["train"] = "session, checkpoint, inference record model_files, job"
    subfolders["cli"] = "output, options, launcher, commands, ."
    for (top in subfolders) {
        n = split(subfolders[top], levels, ",")
        for (i = 1; i <= n; i++) {
            m = split(levels[i], names, " ")
            for (j = 1; j <= m; j++) subfolder_level[names[j] == "." ? top : top "/" names[j]] = i
        }
    }
    # A public header belongs to the folder of its name; these have another name.
    owner["status"] = owner["dtype"] = "base"
    owner["kolo"] = owner["model"] = "models"
    owner["dump"] = "inspect"
    owner["profile"] = "inspect"
    owner["phase"] = "plan"
    split("assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign " \
          "stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar " \
          "wchar wctype", t, " ")
    for (i in t) standard[t[i] ".h"] = 1
    unsafe = "strcpy|strcat|stpcpy|sprintf|vsprintf|gets|system|popen|fork|vfork|alloca|__builtin_alloca|" \
             "setjmp|sigsetjmp|longjmp|siglongjmp|strtok|atoi|atol|atoll|atof|strtof|strtold|setlocale|rand|srand|random|tmpnam|mktemp"
    heap = "malloc|calloc|realloc|strdup|strndup|asprintf|aligned_alloc|posix_memalign"
    loud = "printf|vprintf|puts|putchar|perror|exit|_exit|quick_exit|abort"
    environment = "getenv|secure_getenv|setenv|putenv|unsetenv"
}

FNR == 1 {
    in_comment = 0
    first_include = first_code = ""
    public = FILENAME ~ /^include\//
    header = FILENAME ~ /\.h$/
    folder = public ? "include" : FILENAME
    sub(/^src\//, "", folder)
    sub(/\/.*/, "", folder)
    stem = FILENAME
    sub(/.*\//, "", stem)
    sub(/\..*/, "", stem)
    seen_quoted = 0
    subfolder = subfolder_of(FILENAME)
}

# The subfolder of a source: the longest one of its path that has a level; "" when none has.
function subfolder_of(path) {
    sub(/^src\//, "", path)
    while (sub(/\/?[^\/]*$/, "", path) && path != "")
        if (path in subfolder_level) return path
    return ""
}

function breach(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    breaches++
}

# The code of a line: no comments, no contents of strings.
function code_of(line,    out, c, two, quote) {
    out = ""
    quote = ""
    while (line != "") {
        c = substr(line, 1, 1)
        two = substr(line, 1, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; line = substr(line, 3) } else line = substr(line, 2)
        } else if (quote != "") {
            if (c == "\\") { line = substr(line, 3); continue }
            if (c == quote) { quote = ""; out = out c }
            line = substr(line, 2)
        } else if (two == "/*") { in_comment = 1; out = out " "; line = substr(line, 3)
        } else if (two == "//") { line = ""
        } else {
            if (c == "\"" || c == "'") quote = c
            out = out c
            line = substr(line, 2)
        }
    }
    return out
}

function calls(code, names) { return code ~ ("(^|[^A-Za-z0-9_.>])(" names ")[ ]*\\(") }

# An included header, given without its quotes or brackets.
function include(name, quoted,    top, own, other) {
    if (first_include == "") {
        first_include = name
        own = FILENAME
        sub(/^src\//, "", own)
        sub(/[^\/]*$/, stem ".h", own)
        if (!header && (("src/" own) in files) && name != own)
            breach("includes \"" name "\" before its own header \"" own "\"")
    } else if (!header && quoted && !seen_quoted)
        breach("includes a system header before the project's headers")
    if (quoted) seen_quoted = 1

    top = name
    sub(/\/.*/, "", top)
    if (name ~ /^kolo\//) {
        top = substr(name, 6)
        sub(/\.h$/, "", top)
        if (top in owner) top = owner[top]
        if (!public && folder in level && top in level && top != folder && level[top] >= level[folder])
            breach(folder " includes <" name ">, which is not below it")
        return
    }
    if (public && !(name in standard)) breach("a public header includes " name)
    if (quoted && name !~ /\//) breach("name the folder of \"" name "\"")
    if (quoted && top in level && top != folder) {
        if (folder == "models" || (folder == "cli" && top != "base") || level[top] >= level[folder])
            breach(folder " includes \"" name "\", which is not for it")
    }
    if (quoted && top == folder && subfolder != "") {
        other = subfolder_of(name)
        if (other != "" && other != subfolder && subfolder_level[other] >= subfolder_level[subfolder])
            breach(subfolder " includes \"" name "\", which is not below it")
    }
    if (!quoted && name ~ /^(dnnl|cblas|mkl|omp|cuda)/ && folder != "kernel")
        breach("only src/kernel includes the vendor header <" name ">")
    if (!quoted && name ~ /^(unistd|pthread|fcntl|poll|spawn|sched|semaphore|sys\/|netinet\/|arpa\/|dirent|linux\/)/ &&
        folder !~ /^(base|comm|data|device|cli)$/)
        breach("<" name "> in " folder ": POSIX stays in base, comm, data, device and cli")
}

{
    code = code_of($0)
    if (header && first_code == "" && code ~ /[^ \t]/) {
        first_code = code
        if (code !~ /^#pragma once/) breach("a header starts with #pragma once")
    }
    if (!in_comment && $0 ~ /^[ \t]*#[ \t]*include[ \t]*["<]/) {
        name = $0
        quoted = name ~ /include[ \t]*"/
        sub(/^[^"<]*["<]/, "", name)
        sub(/[">].*/, "", name)
        include(name, quoted)
        next
    }
    if (code ~ /^[ \t]*#[ \t]*define/) sub(/^[ \t]*#[ \t]*define[ \t]+[A-Za-z_0-9]+/, "", code)
    if (match(code, /(struct|enum|union)[ ]+[A-Za-z_0-9]+[ ]*\{/)) {
        tag = substr(code, RSTART, RLENGTH)
        gsub(/(struct|enum|union)|[ {]/, "", tag)
        shared = header || tag ~ /^kolo_/
        if (tag in tag_at && (shared || tag_shared[tag])) breach("tag " tag " is also defined at " tag_at[tag])
        if (!(tag in tag_at)) tag_at[tag] = FILENAME ":" FNR
        if (shared) tag_shared[tag] = 1
    }
    # libjpeg and libpng report errors by a callback that must not return.
    jumps = FILENAME ~ /data\/images\/(jpeg|png)\.c$/ && calls(code, "setjmp|longjmp")
    if (calls(code, unsafe) && !jumps) breach("banned call: " code)
    if (calls(code, "strtod"))
        breach("kolo_parse_double parses numbers in every locale: " code)
    if (folder != "cli" && calls(code, "snprintf|vsnprintf") && $0 ~ /%[0-9.*+-]*l?[efgEFG]/)
        breach("kolo_snprintf formats numbers in every locale: " code)
    if (FILENAME != "src/base/memory.c" && calls(code, heap))
        breach("heap memory comes from kolo_alloc: " code)
    if (folder != "cli" && FILENAME != "src/base/status.c") {
        if (calls(code, loud) || code ~ /fprintf[ ]*\([ ]*std(out|err)/)
            breach("the library neither prints nor exits: " code)
        if (folder !~ /^(comm|base)$/ && calls(code, environment))
            breach("the library reads no environment variables but those of the rank environment: " code)
    }
}

END { exit breaches > 0 }
