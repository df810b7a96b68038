#!/usr/bin/env bash
# cuda_stand_in.sh TORCH_LIB OUTPUT: writes stand-ins for the CUDA libraries that libtorch_python.so names, so that torch can be
# imported for its CPU part without them. Every function answers 0 ("no device"), every object is zeros; type descriptions are real
# ones without bases, because pybind11 asks for their names.
set -euo pipefail
readonly torch_lib=$1 output=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

exported() { nm -D --defined-only "$@" | awk 'NF == 3 { sub(/@.*/, "", $3); print $3, $2 }' | sort -u -k 1,1; }
imported() { nm -D --undefined-only "$@" | awk 'NF == 2 { sub(/@.*/, "", $2); print $2 }' | sort -u; }

# Reads "symbol type" lines, writes assembler that defines them.
assemble() {
  awk '
    function label(name) { return ".globl " name "\n.type " name ",@function\n" name ":\n" }
    $1 ~ /^_ZTI/ {
      data = data ".p2align 4\n.globl " $1 "\n" $1 ":\n.quad _ZTVN10__cxxabiv117__class_type_infoE+16, .Lname" NR "\n" \
             ".Lname" NR ": .asciz \"" substr($1, 5) "\"\n"
      next
    }
    # Returns a place that the caller writes a function pointer to.
    $1 ~ /get_gil_checker/ { text = text label($1) "lea slot(%rip), %rax\nret\n"; next }
    $2 ~ /[TWi]/ { functions = functions label($1); next }
    { data = data ".p2align 4\n.globl " $1 "\n" $1 ":\n.zero 1024\n" }
    END {
      print ".text\n" text functions "xor %eax, %eax\nret"
      print ".data\nslot: .zero 64\n" data
      print ".section .note.GNU-stack,\"\",@progbits"
    }'
}

# cuDNN's symbols are looked up by version, which is named as the library; the others' have none.
stand_in() {
  local soname=$1 version=()
  if [[ $soname == libcudnn.so.* ]]; then
    printf '%s { global: *; };\n' "$soname" >"$work/versions"
    version=(-Wl,--version-script="$work/versions")
  fi
  g++ -shared -x assembler "$work/$soname.s" -o "$output/$soname" -Wl,-soname,"$soname" "${version[@]}"
}

imported "$torch_lib/libtorch_python.so" >"$work/imported"
exported "$torch_lib"/libtorch_cuda.so "$torch_lib"/libc10_cuda.so "$torch_lib"/libtorch_nvshmem.so >"$work/cuda"
join "$work/imported" "$work/cuda" | assemble >"$work/libtorch_cuda.so.s"
grep -E '^cudnn' "$work/imported" | sed 's/$/ T/' | assemble >"$work/libcudnn.so.9.s"
grep -E '^cuFile' "$work/imported" | sed 's/$/ T/' | assemble >"$work/libcufile.so.0.s"
assemble </dev/null >"$work/libc10_cuda.so.s"
for soname in libtorch_cuda.so libc10_cuda.so libcudnn.so.9 libcufile.so.0; do
  stand_in "$soname"
done
