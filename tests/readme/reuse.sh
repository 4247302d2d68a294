#!/bin/sh
# A compiler launcher, as CMAKE_C_COMPILER_LAUNCHER: takes an object file from the build in $KOLO_REUSE,
# which has compiled the same sources with the same options; compiles what is not there.
#     reuse.sh COMPILER -o OBJECT -MF DEPENDENCIES ...
object='' dependencies='' previous=''
for word; do
    case $previous in
    -o) object=$word ;;
    -MF) dependencies=$word ;;
    esac
    previous=$word
done
if [ "$dependencies" ] && [ -f "$KOLO_REUSE/$object" ] && cp "$KOLO_REUSE/$object" "$object"; then
    echo "$object:" >"$dependencies"
else
    exec "$@"
fi
