/* Runs that processes join: the file `join` in the folder of the run, see join.c. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/readers.h"
#include "train/job/job.h"

#include <inttypes.h>

kolo_status kolo_job_describe_joining(const kolo_job *j, kolo_text *text) {
    kolo_setup setup = j->setup;
    uint64_t hash;
    KOLO_TRY(kolo_dataset_fingerprint(setup.train, &hash));
    setup.opts.init = setup.opts.resume = NULL;
    setup.opts.init_partial = false;
    if (setup.opts.ledger) setup.opts.ledger = "given";
    kolo_setup_describe(&setup, text);
    kolo_text_add(text, "hash of some samples: %016" PRIx64 "\n", hash);
    return text->failed ? KOLO_NOMEM(text->length) : KOLO_OK;
}

static kolo_status write_file(kolo_job *j) {
    kolo_text text = {0}, options = {0};
    kolo_status status = kolo_job_describe_joining(j, &options);
    if (status == KOLO_OK) {
        kolo_text_add(&text,
                      "kolo-join 1\nworkers %d joins %d asks %d saved %" PRId64 " ledger %" PRId64
                      " options %zu\n%s",
                      j->size, j->setup.opts.joins, j->preemption.asks, j->saved, j->state.ledger,
                      options.length, options.text);
        kolo_session_describe_join(j->session, &text);
        if (!j->join_file) j->join_file = kolo_format("%s/join", j->setup.opts.out_dir);
        status = text.failed || !j->join_file
                     ? KOLO_NOMEM(text.length)
                     : kolo_file_write(j->join_file, text.text, text.length);
    }
    kolo_text_fini(&options);
    kolo_text_fini(&text);
    return status;
}

kolo_status kolo_job_invite(kolo_job *j) {
    if (j->setup.opts.joins == 0 || j->rank != 0) return KOLO_OK;
    return write_file(j);
}

kolo_status kolo_job_renew_invitation(kolo_job *j) {
    int lost = 0;
    if (!j->join_file || j->setup.opts.replicas == 0) return KOLO_OK;
    for (int i = 0; i < j->setup.opts.servers; i++) {
        lost += kolo_session_has_lost_server(j->session, i);
    }
    if (lost == j->join_lost) return KOLO_OK;
    j->join_lost = lost;
    return kolo_job_decide(j, write_file(j));
}
