#!/bin/sh
# Installs the C interface: shared and static library, header, pkg-config file and CMake package.
#
#   driver/bindings/c/install.sh --prefix PREFIX [--libdir DIR] [--destdir DIR] [--archive LIBRARY]
#
#   --prefix   where programs find the files later: an absolute path [default: /usr/local]
#   --libdir   folder of the libraries below the prefix [default: lib]
#   --destdir  the files are written below this folder, which becomes / later; for packages
#   --archive  a libfpga.a that is built already [default: built now, with optimisation]
#   CC         compiler that links the shared library [default: cc]
#
# rustc links a shared library with a version script of its own, which has no versions. So the compiler links it here, from libfpga.a.
set -eu

usage() {
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local libdir=lib destdir='' archive=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --prefix) prefix=${2%/} ;;
    --libdir) libdir=${2%/} ;;
    --destdir) destdir=${2%/} ;;
    --archive) archive=$2 ;;
    *) usage ;;
    esac
    shift 2
done
# pkg-config splits its output at spaces.
case $prefix in
/*[!A-Za-z0-9_./+~-]*) fail "prefix $prefix has a character other than letters, digits and _./+~-: choose another prefix" ;;
/*) ;;
*) fail "prefix '$prefix' is not an absolute path: begin it with /" ;;
esac
case $libdir in
'' | /* | *[!A-Za-z0-9_./+-]* | *..*) fail "libdir '$libdir' is not a folder below the prefix, such as lib/x86_64-linux-gnu" ;;
esac

if [ -z "$archive" ]; then
    # One crate type, so that the whole library is optimised at once.
    root=$(cd "$here/../../.." && pwd)
    (cd "$root" && cargo rustc --release --locked --package fpga-c --lib --crate-type staticlib)
    archive=${CARGO_TARGET_DIR:-$root/target}/release/libfpga.a
fi
[ -f "$archive" ] || fail "no library $archive: build it by cargo build -p fpga-c, or omit --archive"

number() { # number NAME: value of a macro of the header
    sed -n "s/^#define $1 \([0-9][0-9]*\)\$/\1/p" "$here/include/fpga.h"
}
major=$(number FPGA_VERSION_MAJOR)
minor=$(number FPGA_VERSION_MINOR)
version=$major.$minor
soname=libfpga.so.$major
real_name=libfpga.so.$version
# Libraries of `rustc --print native-static-libs` without -lgcc_s and -lc, which the compiler adds itself: as libgcc_eh for -static.
system_libraries='-lutil -lrt -lpthread -lm -ldl'
# The way from the CMake package back to the prefix: out of the file, fpga, cmake and every folder of libdir.
to_prefix=../../..$(printf '%s/' "$libdir" | sed 's|[^/][^/]*/|/..|g')

fill() { # fill NAME DIRECTORY: install a file of install/ with the names of this installation
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$version|g" -e "s|@MAJOR@|$major|g" \
        -e "s|@SONAME@|$soname|g" -e "s|@REAL_NAME@|$real_name|g" -e "s|@TO_PREFIX@|$to_prefix|g" \
        -e "s|@SYSTEM_LIBRARIES@|$system_libraries|g" "$here/install/$1.in" >"$2/$1"
    chmod 644 "$2/$1"
}

to=$destdir$prefix
libraries=$to/$libdir
install -d "$to/include" "$libraries/pkgconfig" "$libraries/cmake/fpga"
# Threads of the library and destructors of its thread-local variables may run at any time: dlclose keeps it loaded.
# shellcheck disable=SC2086 # $CC and the list of libraries are words
${CC:-cc} -shared -o "$libraries/$real_name" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -Wl,--gc-sections \
    -Wl,--version-script="$here/install/fpga.map" -Wl,-soname,"$soname" \
    -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete $system_libraries
chmod 644 "$libraries/$real_name"
ln -sf "$real_name" "$libraries/$soname"
ln -sf "$soname" "$libraries/libfpga.so"
install -m 644 "$archive" "$libraries/libfpga.a"
install -m 644 "$here"/include/* "$to/include"
fill fpga.pc "$libraries/pkgconfig"
fill fpga-config.cmake "$libraries/cmake/fpga"
fill fpga-config-version.cmake "$libraries/cmake/fpga"
