/* Lists of new tensor names from a peer: the first byte selects the sending rank. What is accepted
 * can be written and read again, and gives the same table. */
#include "base/memory.h"
#include "comm/sync/named_names.h"
#include "fuzz/fuzz.h"

#include <string.h>

/* All names of a table once more, as sent by a rank that has no ids yet. */
static void read_again(const kolo_name_table *table) {
    kolo_name_table own = {0}, other = {0};
    char *bytes = NULL;
    size_t length = 0;
    for (size_t i = 0; i < table->n; i++) {
        const kolo_named_tensor *t = &table->tensors[i];
        int handle;
        if (kolo_names_add(&own, t->name, strlen(t->name), &t->signature, &handle)) return;
        KOLO_ASSERT(handle == (int)i);
    }
    KOLO_ASSERT(kolo_names_write(&own, &bytes, &length) == KOLO_OK);
    KOLO_ASSERT(kolo_names_read(&other, 0, bytes, length) == KOLO_OK);
    KOLO_ASSERT(other.n == table->n && other.n_ids == table->n);
    for (size_t i = 0; i < table->n; i++) {
        KOLO_ASSERT(strcmp(other.tensors[i].name, table->tensors[i].name) == 0);
        KOLO_ASSERT(kolo_names_check(&other.tensors[i], &table->tensors[i].signature, 1) ==
                    KOLO_OK);
    }
    kolo_free(bytes);
    kolo_names_fini(&own);
    kolo_names_fini(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    kolo_name_table table = {0};
    if (length == 0) return 0;
    kolo_status status = kolo_names_read(&table, bytes[0], (const char *)bytes + 1, length - 1);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_ARG);
        KOLO_ASSERT(kolo_last_error()[0]);
    } else {
        read_again(&table);
    }
    kolo_names_fini(&table);
    return 0;
}
