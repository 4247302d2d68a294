/* Resuming a run. The lines of kolo_setup_describe_learning, which the checkpoint stores, must
 * match those of the job: it then computes what the run would have computed, bitwise with the same
 * number of workers and threads and the same kernels, otherwise up to rounding. So must the keys of
 * the data set. The learning rate alone may differ, which a notice states: without one it must not.
 * If the latest checkpoint of a folder is lost or damaged, the previous one is used. */
#include "train/checkpoint/resume.h"

#include "base/file.h"
#include "data/readers/readers.h"
#include "train/checkpoint/folder.h"
#include "train/session/agree.h"
#include "train/session/tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The samples of a step and their factors; 0: --global-batch, or an older checkpoint. */
typedef struct step_samples {
    int64_t all, batch, accumulate, workers;
} step_samples;

/* Parses the line of samples. */
static bool read_samples(const char *line, step_samples *s) {
    *s = (step_samples){0};
    int n = sscanf(line, KOLO_STEP_SAMPLES "%" SCNd64 " = %" SCNd64 " x %" SCNd64 " x %" SCNd64,
                   &s->all, &s->batch, &s->accumulate, &s->workers);
    return n == 1 || n == 4;
}

/* Suggests one option that makes the products equal. `fixed`: the number of workers is. */
static void add_advice(kolo_text *text, const step_samples *theirs, const step_samples *ours,
                       bool normalizes, bool fixed) {
    int64_t least = ours->batch * ours->workers, step = ours->accumulate * ours->workers;
    if (ours->batch == 0) {
        kolo_text_add(text, "give --global-batch %" PRId64, theirs->all);
    } else if (fixed && theirs->workers > 0 && theirs->workers != ours->workers) {
        kolo_text_add(text, "it needs the same number of workers: give --workers %" PRId64,
                      theirs->workers);
    } else if (theirs->batch == ours->batch && theirs->all % least == 0) {
        kolo_text_add(text, "give --accumulate %" PRId64, theirs->all / least);
    } else if (!normalizes && theirs->all % step == 0) {
        kolo_text_add(text, "give --batch %" PRId64, theirs->all / step);
    } else {
        kolo_text_add(text, "give batch, accumulate and workers with that product");
    }
}

static void add_samples(kolo_text *text, const step_samples *s) {
    kolo_text_add(text, "%" PRId64 " samples a step", s->all);
    if (s->batch == 0) return;
    kolo_text_add(text, " (--batch %" PRId64 ", --accumulate %" PRId64 ", %" PRId64 " worker%s)",
                  s->batch, s->accumulate, s->workers, s->workers == 1 ? "" : "s");
}

/* A line as a command-line option: "lr: 0.1" is --lr 0.1. */
static void add_line(kolo_text *text, const char *line, int length) {
    int key = (int)strcspn(line, ":"), value = key + 2;
    bool option = !memchr(line, ' ', (size_t)key) && strncmp(line, "samples:", 8) != 0;
    if (!option || value > length) {
        kolo_text_add(text, "\"%.*s\"", length, line);
        return;
    }
    const char *state = line + value;
    bool off = value == length || strncmp(state, "false\n", 6) == 0;
    if (off || strncmp(state, "true\n", 5) == 0) {
        kolo_text_add(text, "%s--%.*s", off ? "no " : "", key, line);
    } else {
        kolo_text_add(text, "--%.*s %.*s", key, line, length - value, line + value);
    }
}

static bool is_rate(const char *line) { return strncmp(line, "lr: ", 4) == 0; }

static kolo_status fail_difference(const char *path, const char *theirs, const char *ours,
                                   bool normalizes, bool fixed) {
    kolo_text text = {0};
    step_samples a, b;
    kolo_text_add(&text, "%s belongs to a run with ", path);
    if (read_samples(theirs, &a) && read_samples(ours, &b)) {
        add_samples(&text, &a);
        kolo_text_add(&text, ", this job has ");
        add_samples(&text, &b);
        kolo_text_add(&text, ": ");
        add_advice(&text, &a, &b, normalizes, fixed);
    } else {
        add_line(&text, theirs, (int)strcspn(theirs, "\n"));
        kolo_text_add(&text, ", this job has ");
        add_line(&text, ours, (int)strcspn(ours, "\n"));
        kolo_text_add(&text, ": use the option of the run");
        if (is_rate(theirs)) kolo_text_add(&text, ", or set `notice`, which states the change");
    }
    kolo_text_add(&text, ", or start a new run from its weights with --init");
    kolo_status status =
        text.failed ? KOLO_NOMEM(text.length) : KOLO_FAIL(KOLO_ERR_ARG, "%s", text.text);
    kolo_text_fini(&text);
    return status;
}

/* Whether a text has a line with the key of `line`. */
static bool has_key(const char *text, const char *line) {
    const size_t key = strcspn(line, ":\n") + 1;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        if (strncmp(text, line, key) == 0) return true;
    }
    return false;
}

/* One of the two has a line that the other lacks. */
static kolo_status fail_missing(const char *path, const char *line, bool of_run) {
    kolo_text text = {0};
    kolo_text_add(&text, "%s belongs to a run ", path);
    kolo_text_add(&text, of_run ? "with " : "without ");
    const size_t before = text.length;
    add_line(&text, line, (int)strcspn(line, "\n"));
    const bool option = !text.failed && strncmp(text.text + before, "--", 2) == 0;
    kolo_text_add(&text, of_run ? ", which this job lacks" : ", which this job has");
    kolo_text_add(&text, of_run && option ? ": give it, too" : ": use the options of the run");
    kolo_text_add(&text, ", or start a new run from its weights with --init");
    kolo_status status =
        text.failed ? KOLO_NOMEM(text.length) : KOLO_FAIL(KOLO_ERR_ARG, "%s", text.text);
    kolo_text_fini(&text);
    return status;
}

/* The line of the learning rate, the one number that a job may change on purpose; "" if none. */
static const char *rate_line(const char *lines) {
    while (*lines && !is_rate(lines)) {
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    return lines;
}

/* What a line of n characters states, without the folder of a model in a file: the same file may be
 * given by several paths. */
static const char *statement(const char *line, size_t *n) {
    const char *at = line + *n;
    if (strncmp(line, "model: ", 7) != 0) return line;
    while (at > line + 7 && at[-1] != '/') at--;
    *n -= (size_t)(at - line);
    return at;
}

/* `rates`: the learning rates may differ. */
static bool is_same(const char *a, size_t n, const char *b, size_t m, bool rates) {
    step_samples one, other;
    if (read_samples(a, &one) && read_samples(b, &other)) return one.all == other.all;
    if (rates && is_rate(a) && is_rate(b)) return true;
    bool same_key = n > 0 && m > 0 && *a == *b;
    a = statement(a, &n);
    b = statement(b, &m);
    return same_key && n == m && memcmp(a, b, n) == 0;
}

/* ARG with the first line that differs. */
static kolo_status compare(const char *path, const char *theirs, const char *ours, bool normalizes,
                           bool rates) {
    const char *a = theirs, *b = ours;
    while (*a || *b) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        bool same = is_same(a, n, b, m, rates);
        if (!same && *a && !has_key(b, a)) return fail_missing(path, a, true);
        if (!same && *b && !has_key(a, b)) return fail_missing(path, b, false);
        if (!same) return fail_difference(path, a, b, normalizes, has_key(theirs, "workers:"));
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
    return KOLO_OK;
}

static void notify_rate(const kolo_train_opts *o, const char *theirs, const char *ours) {
    const char *old = rate_line(theirs), *now = rate_line(ours);
    const size_t n = strcspn(old, "\n"), m = strcspn(now, "\n");
    if (n < 4 || m < 4 || (n == m && memcmp(old, now, n) == 0)) return;
    kolo_notify(o, KOLO_NOTICE_WARNING, "resume: --lr %.*s from here on; the run had --lr %.*s",
                (int)m - 4, now + 4, (int)n - 4, old + 4);
}

/* The lines have the name of the data set and the number of its samples. Its keys, such as decode=,
 * change these; its path, where it lies, may differ. */
static kolo_status check_data(const kolo_setup *setup, const kolo_checkpoint *c) {
    const char *theirs = c->info.data, *ours = setup->opts.data;
    if (!theirs || !ours || kolo_dataset_same_keys(theirs, ours)) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "%s belongs to a run with --data %s, this job has --data %s: give the same keys "
        "after the path, or start a new run from its weights with --init",
        c->path, theirs, ours);
}

static kolo_status check_options(const kolo_setup *setup, const kolo_checkpoint *c) {
    kolo_text ours = {0};
    if (!c->info.options) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s holds parameters only and cannot be resumed: start a new run from "
                         "them with --init, or choose a checkpoint of --checkpoint-every",
                         c->path);
    }
    kolo_setup_describe_learning(setup, &ours);
    kolo_status status = ours.failed ? KOLO_NOMEM(ours.length)
                                     : compare(c->path, c->info.options, ours.text,
                                               setup->normalizes, setup->opts.notice != NULL);
    if (status == KOLO_OK) status = check_data(setup, c);
    if (status == KOLO_OK) notify_rate(&setup->opts, c->info.options, ours.text);
    kolo_text_fini(&ours);
    return status;
}

static kolo_status check_steps(const kolo_setup *setup, const kolo_resume *r) {
    if (r->state.steps != r->checkpoint.info.steps) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: the metadata contradict each other: the file is damaged",
                         r->checkpoint.path);
    }
    if (r->state.steps <= setup->total_steps) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is of step %" PRId64 ", and the job ends at step %" PRId64
                     ": increase --epochs or --steps",
                     r->checkpoint.path, r->state.steps, setup->total_steps);
}

/* Whether the folder of the file is out_dir, and its tuning file. */
static kolo_status inspect_folder(kolo_setup *setup, const char *path, kolo_resume *r) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? kolo_format("%.*s", (int)(slash + 1 - path), path) : kolo_strdup("./");
    if (!folder) return KOLO_NOMEM(strlen(path));
    r->here = setup->opts.out_dir && kolo_file_same(folder, setup->opts.out_dir);
    r->tuning = kolo_format("%stuning.txt", folder);
    kolo_free(folder);
    if (!r->tuning) return KOLO_NOMEM(strlen(path));
    if (!kolo_file_exists(r->tuning)) return KOLO_OK;
    setup->opts.tuning = r->tuning;
    setup->opts.tuning_is_cache = false;
    return KOLO_OK;
}

static void notify(const kolo_setup *setup, const kolo_resume *r, const char *path) {
    const kolo_train_opts *o = &setup->opts;
    if (path && r->state.steps == setup->total_steps) {
        kolo_notify(o, KOLO_NOTICE_INFO,
                    "resume: nothing to do: %s is of the last step, %" PRId64
                    "; increase --steps or --epochs to continue",
                    path, r->state.steps);
    } else if (path) {
        kolo_notify(o, KOLO_NOTICE_INFO,
                    "resume: continuing after step %" PRId64 " of %" PRId64 ", from %s",
                    r->state.steps, setup->total_steps, path);
    } else {
        kolo_notify(o, KOLO_NOTICE_INFO, "resume: no checkpoint in %s yet: starting a new run",
                    o->resume);
    }
}

/* Whether the rows beside a checkpoint are intact; else closes it. */
static kolo_status check_tables(const kolo_train_opts *o, const char *path,
                                kolo_checkpoint *checkpoint) {
    if (!o->table) return KOLO_OK;
    char *rows = kolo_checkpoint_tables_path(path);
    const kolo_status status =
        rows ? kolo_tables_check(rows, checkpoint->info.steps) : KOLO_NOMEM(strlen(path));
    kolo_free(rows);
    if (status != KOLO_OK) kolo_checkpoint_close(checkpoint);
    return status;
}

/* Opens *path. If it is the latest of a folder and damaged, opens the newest intact older one
 * instead, replaces *path, and warns about each that is skipped. */
static kolo_status open_intact(const kolo_setup *setup, char **path, kolo_checkpoint *checkpoint) {
    const kolo_train_opts *o = &setup->opts;
    for (;;) {
        char *older = NULL;
        kolo_status status = kolo_checkpoint_open(*path, checkpoint);
        if (status == KOLO_OK) status = check_tables(o, *path, checkpoint);
        bool lost = status == KOLO_ERR_FORMAT || status == KOLO_ERR_IO;
        if (!lost || !kolo_folder_exists(o->resume)) return status;
        char *why = kolo_strdup(kolo_last_error());
        if (!why) return KOLO_NOMEM(strlen(*path));
        kolo_status found = kolo_checkpoint_folder_older(*path, &older);
        if (found != KOLO_OK) {
            status = found;
        } else if (!older) {
            status = KOLO_FAIL(status, "no checkpoint in %s is intact; %s", o->resume, why);
        } else {
            kolo_notify(o, KOLO_NOTICE_WARNING, "resume: %s; trying the previous one, %s", why,
                        older);
        }
        kolo_free(why);
        if (!older) return status;
        kolo_free(*path);
        *path = older;
    }
}

static kolo_status read_checkpoint(kolo_setup *setup, kolo_resume *r) {
    char *path;
    KOLO_TRY(kolo_checkpoint_folder_find(setup->opts.resume, setup->opts.resume_if_any, &path));
    if (!path) {
        notify(setup, r, NULL);
        return KOLO_OK;
    }
    kolo_status status = open_intact(setup, &path, &r->checkpoint);
    if (status == KOLO_OK) status = check_options(setup, &r->checkpoint);
    if (status == KOLO_OK) {
        status = kolo_run_state_read(path, r->checkpoint.info.progress, &setup->zero, &r->state);
    }
    if (status == KOLO_OK) r->order = r->checkpoint.info.order;
    if (status == KOLO_OK) status = check_steps(setup, r);
    if (status == KOLO_OK) status = inspect_folder(setup, path, r);
    if (status == KOLO_OK && setup->opts.table) {
        r->tables = kolo_checkpoint_tables_path(path);
        if (!r->tables) status = KOLO_NOMEM(strlen(path));
    }
    if (status == KOLO_OK) notify(setup, r, path);
    kolo_free(path);
    return status;
}

/* Gives all ranks what rank 0 has read: what is compressed. */
static kolo_status share_compressed(kolo_comm *comm, kolo_resume *r) {
    const char *text = r->checkpoint.info.compressed;
    uint64_t bytes = text ? strlen(text) + 1 : 0; /* 0: nothing was chosen */
    if (comm) KOLO_TRY(kolo_broadcast(comm, &bytes, sizeof bytes, KOLO_DTYPE_U8, 0));
    if (bytes == 0) return KOLO_OK;
    r->compressed = kolo_zalloc(bytes);
    KOLO_TRY(kolo_agree(comm, r->compressed ? KOLO_OK : KOLO_NOMEM(bytes)));
    if (text) memcpy(r->compressed, text, bytes);
    return comm ? kolo_broadcast(comm, r->compressed, bytes, KOLO_DTYPE_U8, 0) : KOLO_OK;
}

kolo_status kolo_resume_open(kolo_setup *setup, kolo_comm *comm, kolo_resume *resume) {
    bool reads = !comm || kolo_comm_rank(comm) == 0;
    if (!setup->opts.resume) return KOLO_OK;
    KOLO_TRY(kolo_agree(comm, reads ? read_checkpoint(setup, resume) : KOLO_OK));
    KOLO_TRY(share_compressed(comm, resume));
    if (!comm) return KOLO_OK;
    KOLO_TRY(kolo_broadcast(comm, &resume->here, sizeof resume->here, KOLO_DTYPE_U8, 0));
    KOLO_TRY(kolo_broadcast(comm, &resume->order, 1, KOLO_DTYPE_I32, 0));
    return kolo_broadcast(comm, &resume->state, sizeof resume->state, KOLO_DTYPE_U8, 0);
}

/* Opens the checkpoint of rank 0 on the other ranks too: each loads its ranges of what is sharded.
 */
static kolo_status open_on_all(kolo_resume *r, kolo_comm *comm) {
    const bool reads = kolo_comm_rank(comm) == 0;
    uint64_t bytes = reads ? strlen(r->checkpoint.path) + 1 : 0;
    KOLO_TRY(kolo_broadcast(comm, &bytes, sizeof bytes, KOLO_DTYPE_U8, 0));
    char *path = kolo_zalloc(bytes);
    KOLO_TRY(kolo_agree(comm, path ? KOLO_OK : KOLO_NOMEM(bytes)));
    if (reads) memcpy(path, r->checkpoint.path, bytes);
    kolo_status status = kolo_broadcast(comm, path, bytes, KOLO_DTYPE_U8, 0);
    if (status == KOLO_OK && !reads) {
        status = kolo_checkpoint_open(path, &r->checkpoint);
        if (status != KOLO_OK) {
            status = kolo_fail_in(status, "rank %d: with --zero all workers read checkpoints",
                                  kolo_comm_rank(comm));
        }
    }
    kolo_free(path);
    return kolo_agree(comm, status);
}

kolo_status kolo_resume_load(kolo_resume *resume, kolo_session *session, kolo_comm *comm) {
    kolo_store *store = kolo_session_store(session);
    if (resume->state.steps == 0) return KOLO_OK;
    bool reads = !comm || kolo_comm_rank(comm) == 0;
    if (comm && kolo_store_is_sharded(store)) {
        KOLO_TRY(open_on_all(resume, comm));
        reads = true;
    }
    kolo_status status =
        reads ? kolo_checkpoint_load_training(&resume->checkpoint, store) : KOLO_OK;
    kolo_checkpoint_close(&resume->checkpoint);
    KOLO_TRY(kolo_agree(comm, status));
    kolo_session_set_steps(session, resume->state.steps, resume->order);
    return kolo_session_share_values(session);
}

void kolo_resume_close(kolo_resume *resume) {
    kolo_checkpoint_close(&resume->checkpoint);
    kolo_free(resume->tables);
    kolo_free(resume->tuning);
    kolo_free(resume->compressed);
    *resume = (kolo_resume){0};
}
