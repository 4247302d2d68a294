/* Options of communicators: defaults and checks. */
#include "comm/engine/comm_opts.h"

#include "base/status.h"
#include "comm/transport/transport.h"

enum {
    TIMEOUT_MS_DEFAULT = 300000,
    HEARTBEAT_MS_DEFAULT = 10000,
    HEARTBEAT_MS_MIN = 100,
    IN_FLIGHT_DEFAULT = 4 * KOLO_FLIGHT_MAX,
    IN_FLIGHT_MOST = 1 << 20,
};

static const int64_t segment_default = (int64_t)64 << 30;

kolo_status kolo_comm_resolve(const kolo_comm_opts *opts, kolo_comm_opts *resolved) {
    kolo_comm_opts o = opts ? *opts : (kolo_comm_opts){0};
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
