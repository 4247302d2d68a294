/* kolo generate: continues a text, or a list of tokens, with a trained language model. */
#include "base/memory.h"
#include "base/process.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"
#include "kolo/train.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* "1,2,3" */
static kolo_status read_tokens(const char *text, int32_t *tokens, int64_t *n) {
    const char *at = text;
    for (*n = 0;; at++) {
        char *end;
        errno = 0;
        const long token = strtol(at, &end, 10);
        if (end == at || errno != 0 || token < 0 || token > INT32_MAX || (*end && *end != ',')) {
            return KOLO_FAIL(KOLO_ERR_ARG, "--prompt-tokens %s: give numbers such as 1,2,3", text);
        }
        tokens[(*n)++] = (int32_t)token;
        at = end;
        if (!*at) return KOLO_OK;
    }
}

static kolo_status read_prompt(kolo_options *o, kolo_generate_opts *opts) {
    const char *text = kolo_options_text(o, "prompt"),
               *list = kolo_options_text(o, "prompt-tokens");
    if (!text == !list) {
        return KOLO_FAIL(KOLO_ERR_ARG, "give --prompt or --prompt-tokens%s",
                         text ? ", not both" : "");
    }
    const size_t most = strlen(text ? text : list);
    int32_t *tokens = kolo_arena_alloc(&o->arena, (most + 1) * sizeof *tokens);
    if (!tokens) return KOLO_NOMEM(most * sizeof *tokens);
    opts->prompt = tokens;
    if (list) return read_tokens(list, tokens, &opts->prompt_length);
    for (size_t i = 0; i < most; i++) tokens[i] = (unsigned char)text[i];
    opts->prompt_length = (int64_t)most;
    return KOLO_OK;
}

typedef struct printer {
    const char *prompt; /* printed before the first token; NULL: has been */
    bool bytes;
} printer;

/* Bytes as they are, numbers separated by commas. */
static kolo_status print_token(void *arg, int32_t token) {
    printer *p = arg;
    kolo_text text = {0};
    if (p->prompt) kolo_text_add(&text, "%s", p->prompt);
    p->prompt = NULL;
    if (p->bytes) {
        kolo_text_add(&text, "%c", token);
    } else {
        kolo_text_add(&text, ",%d", token);
    }
    kolo_status status = output_print(&text);
    kolo_text_fini(&text);
    return status;
}

static kolo_status end_line(void) {
    kolo_text text = {0};
    kolo_text_add(&text, "\n");
    kolo_status status = output_print(&text);
    kolo_text_fini(&text);
    return status;
}

static kolo_status generate(kolo_options *o) {
    const char *text = kolo_options_text(o, "prompt");
    printer p = {.prompt = text ? text : kolo_options_text(o, "prompt-tokens"), .bytes = text};
    kolo_generate_opts opts = {
        .checkpoint = kolo_options_text(o, "checkpoint"),
        .bytes = p.bytes,
        .tokens = kolo_options_int(o, "tokens"),
        .temperature = kolo_options_float(o, "temperature"),
        .top_k = kolo_options_int(o, "top-k"),
        .seed = (uint64_t)kolo_options_int(o, "seed"),
        .threads = (int)kolo_options_int(o, "threads"),
        .whole_window = kolo_options_flag(o, "whole-window"),
        .sink = print_token,
        .arg = &p,
    };
    if (opts.threads == 0) opts.threads = kolo_processors();
    if (kolo_options_given(o, "model")) {
        KOLO_TRY(train_opts_model(o, &opts.model, &opts.model_options));
    }
    KOLO_TRY(read_prompt(o, &opts));
    KOLO_TRY(kolo_generate(&opts));
    return end_line();
}

int cmd_generate(kolo_options *o) {
    kolo_status status = generate(o);
    return status == KOLO_OK ? 0 : report_failure(status);
}
