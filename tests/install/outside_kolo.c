/* A program that embeds all of Kolo. */
#include <kolo/kolo.h>

#include <stdio.h>

int main(void) {
    printf("kolo %s, f32 is %zu bytes\n", kolo_version(), kolo_dtype_bytes(KOLO_DTYPE_F32));
    return kolo_dtype_bytes(KOLO_DTYPE_F32) != 4;
}
