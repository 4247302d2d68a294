#pragma once
/* Status codes and error messages.
 *
 * A function that can fail because of its caller, a file, a peer or the system returns a
 * kolo_status. On failure it sets the last error of the calling thread, a line that names what
 * failed, where, and what to do; it is valid until the thread's next failure. Outputs are written
 * only on success. */

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_API __attribute__((visibility("default")))

/* The list of status codes: code, description. */
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

/* The description of a status ("invalid argument"); static storage, thread-safe. */
KOLO_API const char *kolo_status_text(kolo_status status);

/* This thread's last error, or "" if there was none. Valid until this thread's next failure. */
KOLO_API const char *kolo_last_error(void);

/* Sets this thread's last error and returns `status`: for errors in callbacks of a program, such as
 * model builders. */
KOLO_API kolo_status kolo_error_set(kolo_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The entry of `names` (NULL-terminated) closest to `word` by edit distance, for suggestions in
 * error messages; NULL if none is close. */
KOLO_API const char *kolo_closest(const char *word, const char *const *names);

/* The version of the library as "major.minor.patch"; static storage. */
KOLO_API const char *kolo_version(void);

#ifdef __cplusplus
}
#endif
