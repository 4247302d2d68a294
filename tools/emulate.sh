#!/bin/sh
# Runs tests of the release build on an emulated processor with AVX-512. Bochs boots Debian's kernel from a CD
# image that holds only the tests, their libraries, the golden files and busybox; output arrives over a serial
# line. Needs Debian 12 but no root: packages are unpacked under build/emulate, not installed. Choose tests of
# well under a second: emulation is hundreds of times slower (docs/avx512.md).
#     emulate.sh REGEX             tests whose ctest names match
#     emulate.sh -- COMMAND...     one command, such as: build/release/kolo info
# Exits 1 when something failed. In the environment:
#     EMULATE_MODEL      Bochs's name of the processor; sapphire_rapids, of Bochs 3.0, has AVX512-BF16
#     EMULATE_SECONDS    the time limit of it all
#     EMULATE_BOCHS      a faster Bochs than Debian's, configured with --enable-x86-64 --enable-avx
#                        --enable-evex --enable-all-optimizations --with-nogui
set -u
cd "$(dirname "$0")/.." || exit 1
top=$(pwd) build=$(pwd)/build/release out=$(pwd)/build/emulate
root=$out/packages
packages="bochs bochs-term bochsbios busybox-static isolinux syslinux-common genisoimage"

fail() {
    echo "emulate: $1" >&2
    exit 1
}

# Downloads and unpacks the packages, what of theirs this system lacks, and a kernel; once.
unpack() {
    kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p')
    missing=$(LC_ALL=C apt-get -s install --no-install-recommends bochs bochs-term 2>/dev/null |
        awk '$1 == "Inst" { print $2 }')
    rm -rf "$out/debs" "$root.new"
    mkdir -p "$out/debs"
    # shellcheck disable=SC2086 # lists of names
    (cd "$out/debs" && apt-get download -q $packages $missing "$kernel") >"$out/unpack.log" 2>&1 ||
        fail "cannot download packages, see $out/unpack.log"
    for deb in "$out"/debs/*.deb; do dpkg-deb -x "$deb" "$root.new" || exit 1; done
    mv "$root.new" "$root"
    rm -r "$out/debs"
}

# A line for each thing to run: name, folder, command.
list_tests() {
    ctest --test-dir "$build" -N -V -R "$1" | awk '
        sub(/^[0-9]+: Test command: /, "") { command = $0 }
        sub(/^[0-9]+: Working Directory: /, "") { folder = $0 }
        sub(/^ *Test +#[0-9]+: /, "") { print $0 "\t" folder "\t" command }'
}

# Copies files to their own paths in the image, with the libraries that they load.
put() {
    for file in "$@"; do
        for each in "$file" $(ldd "$file" 2>/dev/null | grep -o '/[^ )]*'); do
            [ -e "$tree$each" ] && continue
            mkdir -p "$tree$(dirname "$each")"
            cp -L "$each" "$tree$each" || exit 1
        done
    done
}

# The only file system, which the kernel unpacks into memory.
fill_tree() {
    tree=$out/tree
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/tmp"
    cp "$root/bin/busybox" "$tree/bin/"
    for name in sh mount mkdir ip sleep poweroff; do ln -s busybox "$tree/bin/$name"; done
    find "$top/tests/golden" "$top/docs/options.md" "$build/kolo" -type f ! -name '*.c' >"$out/files"
    cut -f 3 "$out/list" | tr ' ' '\n' >>"$out/files"
    while read -r file; do [ -f "$file" ] && put "$file"; done <"$out/files"
    cut -f 2 "$out/list" | while read -r folder; do mkdir -p "$tree$folder"; done
    cp "$out/list" "$tree/list"
    cat >"$tree/init" <<'END'
#!/bin/sh
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
ip link set lo up
while IFS="$(printf '\t')" read -r name folder command; do
    echo "== $name"
    (cd "$folder" && sh -c "$command") </dev/null 2>&1
    echo "== $name: exit $?"
done </list
echo "== end"
sleep 1 # for the serial line to empty
poweroff -f
END
    chmod +x "$tree/init"
}

# The kernel must not see xsavec and xsaves (321, 323), whose sizes Bochs 2.7 gives wrongly, nor fsrm
# (580), with which it hangs on the newer models of Bochs 3.0.
make_disc() {
    cd=$out/cd
    rm -rf "$cd"
    mkdir "$cd"
    (cd "$tree" && find . | "$root/bin/busybox" cpio -o -H newc) >"$cd/initrd" 2>/dev/null
    cp "$root"/boot/vmlinuz-* "$cd/vmlinuz"
    cp "$root/usr/lib/ISOLINUX/isolinux.bin" "$root/usr/lib/syslinux/modules/bios/ldlinux.c32" "$cd/"
    cat >"$cd/isolinux.cfg" <<'END'
default kolo
label kolo
kernel /vmlinuz
append initrd=/initrd console=ttyS0,115200 quiet nokaslr mitigations=off tsc=reliable clearcpuid=321,323,580
END
    "$root/usr/bin/genisoimage" -quiet -o "$out/cd.iso" -b isolinux.bin -c boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table "$cd"
}

# Bochs, until it powers off. Debian's has a debugger, which needs a terminal and the command to continue.
emulate() {
    share=$root/usr/share/bochs
    : >"$out/serial.log"
    cat >"$out/bochsrc" <<END
megs: 2048
cpu: model=${EMULATE_MODEL:-corei7_skylake_x}, ips=100000000, ignore_bad_msrs=1
romimage: file=$share/BIOS-bochs-latest
vgaromimage: file=$share/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=$out/cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$out/serial.log
log: $out/bochs.log
clock: sync=none
display_library: $([ "${EMULATE_BOCHS:-}" ] && echo nogui || echo term)
END
    if [ "${EMULATE_BOCHS:-}" ]; then
        timeout "${EMULATE_SECONDS:-3600}" "$EMULATE_BOCHS" -q -f "$out/bochsrc"
    else
        echo continue >"$out/debugger"
        libraries=$(echo "$root"/usr/lib/*-linux-gnu)
        TERM=xterm LD_LIBRARY_PATH=$libraries LTDL_LIBRARY_PATH=$libraries/bochs/plugins \
            timeout "${EMULATE_SECONDS:-3600}" script -qec \
            "'$root/usr/bin/bochs-bin' -q -f '$out/bochsrc' -rc '$out/debugger'" /dev/null
    fi >"$out/console.log" 2>&1 </dev/null
}

[ -x "$build/kolo" ] || fail "no build in build/release: run make first"
[ $# -gt 0 ] || fail "name tests by a regular expression, or a command after --"
mkdir -p "$out"
[ -d "$root" ] || unpack
if [ "$1" = -- ]; then
    shift
    first=$(realpath "$1")
    shift
    printf 'command\t%s\t%s\n' "$top" "$first $*" >"$out/list"
else
    list_tests "$1" >"$out/list"
fi
[ -s "$out/list" ] || fail "no test matches"
fill_tree
make_disc || fail "cannot make the CD image"
emulate
tr -d '\r' <"$out/serial.log" | sed -n '/^== /,/^== end/p' | tee "$out/log"
grep -q '^== end' "$out/log" || fail "did not come to an end; see $out/log and $out/bochs.log"
! grep '^== .*: exit' "$out/log" | grep -vE ': exit (0|77)$'
