#pragma once
/* What every call of Kolo returns, and where the text of its last failure is found.
 *
 * A function that can fail because of its user, a file, a peer or the system returns a kolo_status.
 * The first place that notices writes one line that says what, where and what to do; it stays in a
 * slot of the calling thread until that thread's next failure. Outputs are written only on success.
 */

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_API __attribute__((visibility("default")))

/* The one list of status codes: name, text. */
#define KOLO_STATUS_LIST(X)                  \
    X(KOLO_OK, "ok")                         \
    X(KOLO_ERR_ARG, "invalid argument")      \
    X(KOLO_ERR_NOMEM, "out of memory")       \
    X(KOLO_ERR_IO, "input/output error")     \
    X(KOLO_ERR_FORMAT, "malformed data")     \
    X(KOLO_ERR_UNSUPPORTED, "not supported") \
    X(KOLO_ERR_TIMEOUT, "deadline passed")   \
    X(KOLO_ERR_PEER, "lost a peer")          \
    X(KOLO_ERR_DIVERGED, "training diverged")

typedef enum kolo_status {
#define KOLO_STATUS_ENUM(name, text) name,
    KOLO_STATUS_LIST(KOLO_STATUS_ENUM)
#undef KOLO_STATUS_ENUM
} kolo_status;

/* The short text of a status ("invalid argument"); static storage, any thread. */
KOLO_API const char *kolo_status_text(kolo_status status);

/* The line that this thread's latest failure left, or "" if there was none. Valid until this
 * thread's next failure. */
KOLO_API const char *kolo_last_error(void);

/* Leaves a formatted line in this thread's slot and gives `status` back: for failures of a
 * program's own callbacks, such as model builders. */
KOLO_API kolo_status kolo_error_set(kolo_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The entry of `names` (NULL-terminated) closest to `word` by edit distance, if it is close enough
 * to be worth suggesting in such a line, else NULL. */
KOLO_API const char *kolo_closest(const char *word, const char *const *names);

/* The version of the library as "major.minor.patch"; static storage. */
KOLO_API const char *kolo_version(void);

#ifdef __cplusplus
}
#endif
