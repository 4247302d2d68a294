/* The files of a program's session: saving, loading, loading what fits. Rank 0 reads and writes;
 * with sharded state all do. */
#include "kolo/checkpoint.h"
#include "kolo/session.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/finite.h"
#include "train/checkpoint/weights.h"
#include "train/session/agree.h"
#include "train/session/exchange.h"
#include "train/session/session.h"

#include <stdlib.h>
#include <string.h>

static bool is_root(const kolo_session *s) {
    const kolo_comm *comm = kolo_session_comm(s);
    return !comm || kolo_comm_rank(comm) == 0;
}

/* Whether this rank has anything to do with a file: rank 0, and all with sharded state. */
static bool takes_part(const kolo_session *s) {
    return is_root(s) || kolo_store_is_sharded(kolo_session_store(s));
}

static kolo_status check(const kolo_session *s, const char *path) {
    if (s && path && *path) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "no %s: give one", s ? "path of a file" : "session");
}

/* ---- saving ---- */

static kolo_status check_numbers(const kolo_store *store) {
    kolo_text what = {0};
    kolo_status status = kolo_store_find_not_finite(store, &what);
    if (status == KOLO_OK && what.text) {
        status =
            KOLO_FAIL(KOLO_ERR_DIVERGED, "%s: training diverged, and nothing was saved", what.text);
    }
    kolo_text_fini(&what);
    return status;
}

kolo_status kolo_session_save(kolo_session *s, const char *path) {
    if (!s) return check(s, path);
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_session_consolidate_errors(s));
    KOLO_TRY(kolo_session_consolidate(s));
    kolo_comm *comm = kolo_session_comm(s);
    const kolo_store *store = kolo_session_store(s);
    const kolo_checkpoint_info info = {.model = "",
                                       .classes = 1,
                                       .steps = kolo_session_steps(s),
                                       .order = kolo_session_order(s),
                                       .options = "",
                                       .progress = "",
                                       .compressed = kolo_session_compressed(s)};
    kolo_status status = check(s, path);
    if (status == KOLO_OK && takes_part(s)) status = check_numbers(store);
    KOLO_TRY(kolo_agree(comm, status));
    if (takes_part(s)) status = kolo_checkpoint_save(is_root(s) ? path : NULL, store, &info);
    return kolo_agree(comm, status);
}

/* ---- loading ---- */

/* Where a run is: its steps, and the version of its order of samples. */
typedef struct position {
    int64_t steps, order;
    bool known; /* false: the file has weights alone */
} position;

static kolo_status load_training(kolo_session *s, const char *path, position *at) {
    kolo_checkpoint c;
    kolo_store *store = kolo_session_store(s);
    KOLO_TRY(kolo_checkpoint_open(path, &c));
    kolo_status status = kolo_session_trains(s) ? kolo_checkpoint_load_training(&c, store)
                                                : kolo_checkpoint_load(&c, store);
    *at = (position){c.info.steps, c.info.order, true};
    kolo_checkpoint_close(&c);
    return status;
}

/* Without a known position, if the file has weights alone. */
static kolo_status read_file(kolo_session *s, const char *path, position *at) {
    kolo_safetensors *file;
    KOLO_TRY(check(s, path));
    KOLO_TRY(kolo_safetensors_open(path, &file));
    bool training = kolo_safetensors_metadata(file, "training") != NULL;
    kolo_safetensors_close(file);
    if (training) return load_training(s, path, at);
    return kolo_weights_load(path, "of this session", kolo_session_store(s), NULL);
}

/* What the session has compressed that a file is of. */
typedef struct exchanged {
    bool training; /* not of weights alone */
    int64_t steps;
    kolo_text compressed;
} exchanged;

static kolo_status read_exchanged(const char *path, exchanged *e) {
    kolo_safetensors *file;
    KOLO_TRY(kolo_safetensors_open(path, &file));
    const char *steps = kolo_safetensors_metadata(file, "steps");
    const char *compressed = kolo_safetensors_metadata(file, "compressed");
    e->training = steps && kolo_safetensors_metadata(file, "training") != NULL;
    if (steps) e->steps = strtoll(steps, NULL, 10); /* the file is checked when it is loaded */
    kolo_text_add(&e->compressed, "%s%s", compressed ? "=" : "", compressed ? compressed : "");
    kolo_safetensors_close(file);
    return KOLO_OK;
}

/* Where that changes in the course of the steps: the session compresses what that of the file did.
 */
static kolo_status enter(kolo_session *s, const char *path, kolo_exchange_before *before) {
    kolo_comm *comm = kolo_session_comm(s);
    exchanged e = {.steps = 0};
    *before = (kolo_exchange_before){0};
    if (!kolo_session_exchange_changes(s)) return KOLO_OK;
    kolo_status status = check(s, path);
    if (status == KOLO_OK && is_root(s)) status = read_exchanged(path, &e);
    int64_t at[] = {e.training, e.steps};
    status = kolo_share_text(comm, status, &e.compressed);
    if (status == KOLO_OK) status = kolo_broadcast(comm, at, 2, KOLO_DTYPE_I64, 0);
    if (status == KOLO_OK && at[0]) {
        const char *text = e.compressed.text;
        const char *compressed = text && *text ? text + 1 : NULL;
        status = kolo_session_enter_exchange(s, at[1], compressed, before);
    }
    kolo_text_fini(&e.compressed);
    return status;
}

kolo_status kolo_session_load(kolo_session *s, const char *path) {
    if (!s) return check(s, path);
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_session_check_new(s, "loading a file"));
    KOLO_TRY(kolo_session_consolidate_errors(s));
    KOLO_TRY(kolo_session_consolidate(s));
    kolo_comm *comm = kolo_session_comm(s);
    const int64_t before_steps = kolo_session_steps(s);
    position at = {0};
    kolo_exchange_before before;
    kolo_status status = enter(s, path, &before);
    if (status == KOLO_OK) status = takes_part(s) ? read_file(s, path, &at) : KOLO_OK;
    KOLO_TRY(kolo_session_leave_exchange(s, &before, kolo_agree(comm, status)));
    if (comm) KOLO_TRY(kolo_broadcast(comm, &at, sizeof at, KOLO_DTYPE_U8, 0));
    if (at.known) kolo_session_set_steps(s, at.steps, (int)at.order);
    KOLO_TRY(kolo_session_share_values(s));
    kolo_session_restore_local(s); /* the file has what each rank had */
    const bool same = !at.known || at.steps == before_steps;
    return kolo_session_assign(s, same ? kolo_session_updates(s) : 0, at.known ? at.steps : -1);
}

/* Broadcasts the text of rank 0; *text is then allocated on every rank. */
static kolo_status share_text(kolo_comm *comm, kolo_text *own, char **text) {
    int64_t length = (int64_t)own->length;
    if (comm) KOLO_TRY(kolo_broadcast(comm, &length, 1, KOLO_DTYPE_I64, 0));
    char *copy = kolo_zalloc((size_t)length + 1);
    kolo_status status = kolo_agree(comm, copy ? KOLO_OK : KOLO_NOMEM(length));
    if (status == KOLO_OK && own->text && copy) memcpy(copy, own->text, (size_t)length);
    if (status == KOLO_OK && comm) {
        status = kolo_broadcast(comm, copy, (size_t)length, KOLO_DTYPE_U8, 0);
    }
    if (status != KOLO_OK) {
        kolo_free(copy);
        return status;
    }
    *text = copy;
    return KOLO_OK;
}

static kolo_status read_fitting(kolo_session *s, const char *path, kolo_text *rest) {
    KOLO_TRY(check(s, path));
    return kolo_weights_load(path, "of this session", kolo_session_store(s), rest);
}

kolo_status kolo_session_load_partial(kolo_session *s, const char *path, char **rest) {
    if (!s) return check(s, path);
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_session_check_new(s, "loading a file"));
    KOLO_TRY(kolo_session_consolidate_errors(s));
    KOLO_TRY(kolo_session_consolidate(s));
    kolo_comm *comm = kolo_session_comm(s);
    kolo_text lines = {0};
    char *text = NULL;
    kolo_status status = takes_part(s) ? read_fitting(s, path, &lines) : KOLO_OK;
    status = kolo_agree(comm, status);
    if (status == KOLO_OK) status = kolo_session_share_values(s);
    if (status == KOLO_OK) status = share_text(comm, &lines, &text);
    kolo_text_fini(&lines);
    if (status != KOLO_OK) return status;
    status = kolo_session_assign(s, kolo_session_updates(s), -1);
    if (rest && status == KOLO_OK) {
        *rest = text;
    } else {
        kolo_free(text);
    }
    return status;
}
