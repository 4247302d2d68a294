#pragma once
/* chain: a sequence of elementwise ops on tensors of one shape and layout, which a kernel runs
 * piece by piece, so that what one link makes for the next stays in the cache. The pass chains
 * makes them; a chain has the bits of its links. Inputs: those of all links that no link makes.
 * Outputs: the results that others read; output 0 is that of the last link. */

#include "graph/graph.h"

enum {
    KOLO_CHAIN_LINKS = 8,
    KOLO_CHAIN_NUMBERS = 4, /* different attributes of all links */
    KOLO_LINK_INPUTS = 3,
    KOLO_LINK_ATTRS = 2,
};

typedef struct kolo_chain_link {
    const kolo_op *op;
    kolo_dtype dtype; /* of its result */
    int n_in;
    int in[KOLO_LINK_INPUTS]; /* inputs of the chain, and from KOLO_MAX_IO on results of links */
    int out;                  /* output of the chain; -1: only later links read the result */
    kolo_attr attr[KOLO_LINK_ATTRS]; /* the others are zero */
} kolo_chain_link;

typedef struct kolo_chain {
    int n;
    kolo_chain_link link[KOLO_CHAIN_LINKS];
} kolo_chain;

extern const kolo_op kolo_op_chain;

/* Whether nodes of an op may be links: where all tensors have one shape, an element of output 0
 * depends on no others than those of the inputs at its place. */
bool kolo_op_is_link(const kolo_op *op);
/* Appends the links: "[silu(a), mul(1,b)]"; a is input 0, 1 the result of the first link. */
void kolo_chain_print(const kolo_attr *attr, kolo_text *text);

/* Writes a chain as attributes of its node, which have room for KOLO_MAX_ATTRS. False: the links
 * have more different attributes than there is room for. */
bool kolo_chain_write(const kolo_chain *chain, kolo_attr *attr);
kolo_chain kolo_chain_read(const kolo_attr *attr);
