/* Options of communicators: defaults, those of the environment, and checks. */
#include "comm/engine/comm_opts.h"

#include "base/log.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/transport/network.h"

#include <stdlib.h>
#include <string.h>

enum {
    TIMEOUT_MS_DEFAULT = 300000,
    HEARTBEAT_MS_DEFAULT = 10000,
    HEARTBEAT_MS_MIN = 100,
    IN_FLIGHT_DEFAULT = 4 * KOLO_FLIGHT_MAX,
    IN_FLIGHT_MOST = 1 << 20,
};

static const int64_t segment_default = (int64_t)64 << 30;

/* Sets an option that the program has left at 0 from the environment, in seconds. */
static kolo_status seconds_from_env(const char *name, int64_t *ms) {
    const double most = 1e9;
    const char *text = getenv(name);
    if (!text || *ms != 0) return KOLO_OK;
    char *end;
    double seconds = kolo_parse_double(text, &end);
    if (end == text || *end || !(seconds >= 1e-3 && seconds <= most)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is '%.60s': must be a number of seconds", name, text);
    }
    *ms = (int64_t)(seconds * 1000);
    return KOLO_OK;
}

/* Either may ask for it. */
static kolo_status flag_from_env(const char *name, bool *flag) {
    const char *text = getenv(name);
    if (!text || strcmp(text, "0") == 0) return KOLO_OK;
    if (strcmp(text, "1") != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is '%.60s': must be 1 or 0", name, text);
    }
    *flag = true;
    return KOLO_OK;
}

static kolo_status read_env(kolo_comm_opts *o) {
    const char *algorithm = getenv("KOLO_ALGORITHM");
    KOLO_TRY(flag_from_env("KOLO_ENCRYPT", &o->encrypt));
    KOLO_TRY(flag_from_env("KOLO_AUTHENTICATE", &o->authenticate));
    KOLO_TRY(kolo_log_open());
    KOLO_TRY(seconds_from_env("KOLO_TIMEOUT", &o->timeout_ms));
    KOLO_TRY(seconds_from_env("KOLO_HEARTBEAT", &o->heartbeat_ms));
    if (!algorithm || o->algorithm != KOLO_ALGORITHM_AUTO) return KOLO_OK;
    kolo_status status = kolo_algorithm_parse(algorithm, &o->algorithm);
    return status == KOLO_OK ? status : kolo_fail_in(status, "KOLO_ALGORITHM");
}

/* What cannot be encrypted, or authenticated, is refused. */
static kolo_status check_protection(const kolo_comm_opts *o) {
    const kolo_transport_info *info = kolo_transport_info_of(o->transport);
    const char *what = o->encrypt ? "encryption (--encrypt, KOLO_ENCRYPT)"
                                  : "authentication (--authenticate, KOLO_AUTHENTICATE)";
    if (!o->encrypt && !o->authenticate) return KOLO_OK;
    if (!info->network->encrypts) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED, "%s with --transport %s: %s%s; use auto or tcp", what, info->name,
            o->transport == KOLO_TRANSPORT_SHM ? "it has no network to " : "its data is not ",
            o->transport == KOLO_TRANSPORT_SHM ? (o->encrypt ? "encrypt" : "authenticate")
                                               : (o->encrypt ? "encrypted" : "authenticated"));
    }
    if (!o->insecure) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s with --insecure: its keys come from the job's secret, so leave out "
                     "--insecure",
                     what);
}

kolo_status kolo_comm_resolve(const kolo_comm_opts *opts, kolo_comm_opts *resolved) {
    kolo_comm_opts o = opts ? *opts : (kolo_comm_opts){0};
    KOLO_TRY(read_env(&o));
    if (o.timeout_ms < 0 || o.segment_bytes < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a communicator option is negative: timeout_ms %lld, "
                         "segment_bytes %lld",
                         (long long)o.timeout_ms, (long long)o.segment_bytes);
    }
    if ((size_t)o.algorithm >= KOLO_ALGORITHM_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown algorithm %d", (int)o.algorithm);
    }
    if (o.heartbeat_ms == 0) o.heartbeat_ms = HEARTBEAT_MS_DEFAULT;
    if (o.heartbeat_ms < HEARTBEAT_MS_MIN) {
        return KOLO_FAIL(KOLO_ERR_ARG, "heartbeat_ms %lld: the minimum is %d",
                         (long long)o.heartbeat_ms, HEARTBEAT_MS_MIN);
    }
    if ((size_t)o.transport >= KOLO_TRANSPORT_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown transport %d", (int)o.transport);
    }
    KOLO_TRY(check_protection(&o));
    if (o.max_in_flight < 0 || o.max_in_flight > IN_FLIGHT_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "max_in_flight %d: must be 1 to %d", o.max_in_flight,
                         IN_FLIGHT_MOST);
    }
    if (o.max_in_flight == 0) o.max_in_flight = IN_FLIGHT_DEFAULT;
    if (o.timeout_ms == 0) o.timeout_ms = TIMEOUT_MS_DEFAULT;
    if (o.segment_bytes == 0) o.segment_bytes = segment_default;
    *resolved = o;
    return KOLO_OK;
}
