#pragma once
/* Which copy of an *.isa.c source this processor can run. */

#include "base/compiler.h"
#include "base/text.h"

/* The numbers index tables of copies. */
typedef enum kolo_isa { KOLO_ISA_BASELINE, KOLO_ISA_AVX2, KOLO_ISA_AVX512 } kolo_isa;

/* The best instruction set of this processor among those that the build has copies for. */
KOLO_SHARED kolo_isa kolo_isa_best(void);
/* Appends the processor's name, as the system tells it ("AMD EPYC 7763"); nothing where it does
 * not. */
KOLO_SHARED void kolo_processor_name(kolo_text *text);
