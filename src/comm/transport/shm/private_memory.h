#pragma once
/* Reads data outside of segments directly from the process of the sender (process_vm_readv), so
 * that long messages need no stage block. */

#include "comm/transport/shm/control_block.h"

/* Publishes what peers in other processes need to read this one's private memory; rank 0 measures,
 * for all, whether that is faster than staging. */
void kolo_private_memory_offer(kolo_block_transport *t);
/* Tests once whether this rank can read the peer's private memory, and sets `reads` of the channel
 * if so. */
void kolo_private_memory_probe(const kolo_control_block *block, kolo_channel *channel,
                               kolo_channel_end *end);
/* Copies from a peer's private memory. `*valid` is false if the peer has ended, or has reported a
 * failure, after which it may use the memory for something else: its state has the cause. PEER.
 */
kolo_status kolo_private_memory_read(const kolo_control_block *block, int peer, void *to,
                                     uint64_t from, size_t bytes, bool *valid);
