/* Memory of images, and a list of those that no thread uses. */
#include "data/images/memory.h"

#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>

enum { MOST_KEPT = 1 << 24 }; /* bytes of a block: those of a photograph of five megapixels */

struct kolo_image_pool {
    pthread_mutex_t lock;
    kolo_image_memory *idle; /* under lock */
};

static void drop(kolo_image_memory *m, int block) {
    kolo_free(m->block[block]);
    m->block[block] = NULL;
    m->room[block] = 0;
}

void *kolo_image_reserve(kolo_image_memory *m, kolo_image_block block, size_t bytes) {
    if (m->block[block] && m->room[block] >= bytes) return m->block[block];
    /* One that has grown may have to grow a little again. */
    const size_t room = m->block[block] ? bytes + bytes / 4 : bytes;
    drop(m, block);
    m->block[block] = kolo_alloc(room);
    if (m->block[block]) m->room[block] = room;
    return m->block[block];
}

void kolo_image_memory_fini(kolo_image_memory *m) {
    for (int b = 0; b < KOLO_IMAGE_BLOCKS; b++) drop(m, b);
}

kolo_status kolo_image_pool_create(kolo_image_pool **pool) {
    kolo_image_pool *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    *pool = p;
    return KOLO_OK;
}

void kolo_image_pool_destroy(kolo_image_pool *pool) {
    if (!pool) return;
    while (pool->idle) {
        kolo_image_memory *m = pool->idle;
        pool->idle = m->next;
        kolo_image_memory_fini(m);
        kolo_free(m);
    }
    pthread_mutex_destroy(&pool->lock);
    kolo_free(pool);
}

kolo_status kolo_image_pool_take(kolo_image_pool *pool, kolo_image_memory **memory) {
    pthread_mutex_lock(&pool->lock);
    kolo_image_memory *m = pool->idle;
    if (m) pool->idle = m->next;
    pthread_mutex_unlock(&pool->lock);
    if (!m) m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    *memory = m;
    return KOLO_OK;
}

void kolo_image_pool_give(kolo_image_pool *pool, kolo_image_memory *memory) {
    for (int b = 0; b < KOLO_IMAGE_BLOCKS; b++) {
        if (memory->room[b] > MOST_KEPT) drop(memory, b);
    }
    pthread_mutex_lock(&pool->lock);
    memory->next = pool->idle;
    pool->idle = memory;
    pthread_mutex_unlock(&pool->lock);
}
