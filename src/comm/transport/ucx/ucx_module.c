/* libkolo-ucx.so: messages as UCX active messages. See ucx/library.h.
 *
 * The only file that includes UCX. Each communicator has one context and one worker, with one
 * endpoint per peer. Endpoints use UCX's peer error handling, without which operations in flight
 * could not be aborted. UCX may report a lost peer very late; the caller monitors the peers by
 * other means and then calls `abort`.
 *
 * Unless the user has set the same variable, UCX is configured here: TCP carries a message in one
 * segment, and without an RDMA device bodies are always sent eagerly, since fetching them over
 * sockets costs more than it saves. UCX's own shared memory cannot detect that a peer has died, so
 * UCX leaves it out (unless UCX_MM_ERROR_HANDLING=y); use the transport `shm+ucx` inside a host.
 * UCX allocates requests and buffers on first use and keeps them; a message of several segments
 * (UCX_TCP_TX_SEG_SIZE less than ours) allocates a block each time. */
#include "base/clock.h"
#include "base/memory.h"
#include "comm/transport/ucx/library.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

enum {
    MESSAGE_ID = 0, /* id of the active message */
    SEGMENT = 256 << 10,
    SEGMENT_HEADERS = 1 << 10, /* of a segment: Kolo's and UCX's headers */
    MESSAGE_RDMA = 1 << 20,
    CLOSE_NS = 200000000,
    DEVICES_BYTES = 512,
};

typedef struct ucx_state ucx_state;

typedef struct ucx_peer {
    ucx_state *state;
    ucp_ep_h ep;   /* NULL: not connected, or closed */
    void *closing; /* the request of its close; NULL: none */
    bool lost;
} ucx_peer;

struct ucx_state {
    kolo_ucx_callbacks callbacks;
    ucp_context_h context;
    ucp_worker_h worker;
    bool rdma;
    int size;
    ucx_peer peers[];
};

static kolo_status failed(kolo_status status, const char *what, ucs_status_t code) {
    return KOLO_FAIL(status, "UCX %s: %s: %s", ucp_get_version_string(), what,
                     ucs_status_string(code));
}

/* ---- configuration ---- */

/* Gets the first entry of a directory, besides "." and ".."; false if there is none. */
static bool first_in(const char *folder, char name[256]) {
    DIR *dir = opendir(folder);
    if (!dir) return false;
    bool found = false;
    for (struct dirent *e = readdir(dir); e && !found; e = readdir(dir)) {
        found = e->d_name[0] != '.';
        if (found) snprintf(name, 256, "%s", e->d_name);
    }
    closedir(dir);
    return found;
}

/* Lists UCX's device names of an interface: the interface for TCP, and its device for RDMA. */
static void list_devices(const char *interface, char list[DEVICES_BYTES]) {
    char folder[320], device[256];
    int n = snprintf(list, DEVICES_BYTES, "%.64s", interface);
    snprintf(folder, sizeof folder, "/sys/class/net/%.64s/device/infiniband", interface);
    if (!first_in(folder, device)) return;
    int port = 0;
    snprintf(folder, sizeof folder, "/sys/class/net/%.64s/dev_port", interface);
    FILE *file = fopen(folder, "r");
    if (file && fscanf(file, "%d", &port) != 1) port = 0;
    if (file) fclose(file);
    snprintf(list + n, (size_t)(DEVICES_BYTES - n), ",%s:%d", device, port + 1);
}

/* Sets a configuration variable, unless the user has set UCX_<name>. */
static kolo_status set(ucp_config_t *config, const char *name, const char *value) {
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (getenv(variable)) return KOLO_OK;
    ucs_status_t code = ucp_config_modify(config, name, value);
    return code == UCS_OK ? KOLO_OK : failed(KOLO_ERR_UNSUPPORTED, name, code);
}

static kolo_status configure(const kolo_ucx_opts *opts, bool rdma, ucp_config_t *config) {
    char segment[32], devices[DEVICES_BYTES];
    snprintf(segment, sizeof segment, "%d", SEGMENT);
    KOLO_TRY(set(config, "TCP_TX_SEG_SIZE", segment));
    KOLO_TRY(set(config, "TCP_RX_SEG_SIZE", segment));
    if (!rdma) KOLO_TRY(set(config, "RNDV_THRESH", "inf"));
    if (!opts->interface) return KOLO_OK;
    list_devices(opts->interface, devices);
    return set(config, "NET_DEVICES", devices);
}

/* ---- opening ---- */

static ucs_status_t receive(void *arg, const void *head, size_t head_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param) {
    const kolo_ucx_callbacks *l = &((ucx_state *)arg)->callbacks;
    kolo_ucx_body body = {.data = data, .bytes = bytes};
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        body.location = KOLO_UCX_REMOTE;
    } else if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) {
        body.location = KOLO_UCX_BUFFERED;
    }
    bool kept = l->arrived(l->arg, head, head_bytes, &body);
    return kept && body.location != KOLO_UCX_BORROWED ? UCS_INPROGRESS : UCS_OK;
}

static kolo_status open_context(ucx_state *s, const kolo_ucx_opts *opts) {
    ucp_config_t *config;
    ucs_status_t code = ucp_config_read(NULL, NULL, &config);
    if (code != UCS_OK)
        return failed(KOLO_ERR_UNSUPPORTED, "cannot read its configuration (UCX_*)", code);
    kolo_status status = configure(opts, s->rdma, config);
    ucp_params_t params = {.field_mask =
                               UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)opts->size};
    if (status == KOLO_OK) code = ucp_init(&params, config, &s->context);
    ucp_config_release(config);
    if (status != KOLO_OK || code == UCS_OK) return status;
    return failed(KOLO_ERR_UNSUPPORTED,
                  "no usable device (check --interface, UCX_TLS and UCX_NET_DEVICES, or use "
                  "--transport tcp)",
                  code);
}

static kolo_status open_worker(ucx_state *s, int *events) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t code = ucp_worker_create(s->context, &params, &s->worker);
    if (code != UCS_OK) return failed(KOLO_ERR_UNSUPPORTED, "cannot create a worker", code);
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = MESSAGE_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = receive,
        .arg = s};
    code = ucp_worker_set_am_recv_handler(s->worker, &handler);
    if (code != UCS_OK)
        return failed(KOLO_ERR_UNSUPPORTED, "active messages are not supported", code);
    code = ucp_worker_get_efd(s->worker, events);
    return code == UCS_OK ? KOLO_OK
                          : failed(KOLO_ERR_UNSUPPORTED, "cannot get its event descriptor", code);
}

static void free_state(ucx_state *s) {
    if (s->worker) ucp_worker_destroy(s->worker);
    if (s->context) ucp_cleanup(s->context);
    kolo_free(s);
}

static kolo_status ucx_open(const kolo_ucx_opts *opts, void **state, int *events) {
    char unused[256];
    size_t bytes = sizeof(ucx_state) + (size_t)opts->size * sizeof(ucx_peer);
    ucx_state *s = kolo_zalloc(bytes);
    if (!s) return KOLO_NOMEM(bytes);
    *s = (ucx_state){.callbacks = opts->callbacks,
                     .size = opts->size,
                     .rdma = first_in("/sys/class/infiniband", unused)};
    /* The library must not print; failures are returned as errors. */
    if (!getenv("UCX_LOG_LEVEL")) (void)ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    kolo_status status = open_context(s, opts);
    if (status == KOLO_OK) status = open_worker(s, events);
    if (status != KOLO_OK) {
        free_state(s);
        return status;
    }
    *state = s;
    return KOLO_OK;
}

static size_t ucx_message_bytes(const void *state) {
    return ((const ucx_state *)state)->rdma ? MESSAGE_RDMA : SEGMENT - SEGMENT_HEADERS;
}

/* ---- peers ---- */

static kolo_status ucx_address(void *state, void *address, size_t *bytes) {
    ucx_state *s = state;
    ucp_address_t *own;
    ucs_status_t code = ucp_worker_get_address(s->worker, &own, bytes);
    if (code != UCS_OK) return failed(KOLO_ERR_IO, "cannot get its address", code);
    bool fits = *bytes <= KOLO_UCX_ADDRESS_MAX;
    if (fits) memcpy(address, own, *bytes);
    ucp_worker_release_address(s->worker, own);
    if (fits) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "UCX has an address of %zu bytes, for all its devices; at most %d are "
                     "supported: select a network (--interface)",
                     *bytes, KOLO_UCX_ADDRESS_MAX);
}

static void peer_lost(void *arg, ucp_ep_h ep, ucs_status_t code) {
    ucx_peer *p = arg;
    const kolo_ucx_callbacks *l = &p->state->callbacks;
    if (p->lost) return;
    p->lost = true;
    l->lost(l->arg, (int)(p - p->state->peers), ucs_status_string(code));
}

static kolo_status ucx_connect(void *state, int peer, const void *address) {
    ucx_state *s = state;
    ucx_peer *p = &s->peers[peer];
    p->state = s;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = peer_lost, .arg = p}};
    ucs_status_t code = ucp_ep_create(s->worker, &params, &p->ep);
    if (code == UCS_OK) return KOLO_OK;
    p->ep = NULL;
    return failed(KOLO_ERR_UNSUPPORTED,
                  "cannot connect (both ranks need a device of the same kind: check --interface, "
                  "UCX_TLS and UCX_NET_DEVICES, or use --transport tcp)",
                  code);
}

/* ---- messages ---- */

static void end(kolo_ucx_request *own, ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) own->done(own, request == NULL);
}

static void sent(void *request, ucs_status_t code, void *own) {
    ucp_request_free(request);
    ((kolo_ucx_request *)own)->done(own, code == UCS_OK);
}

static void fetched(void *request, ucs_status_t code, size_t bytes, void *own) {
    sent(request, code, own);
}

static void ucx_send(void *state, int peer, const void *head, size_t head_bytes, const void *body,
                     size_t bytes, kolo_ucx_request *request) {
    const ucx_peer *p = &((ucx_state *)state)->peers[peer];
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = sent,
                                 .user_data = request};
    if (!p->ep || p->lost) {
        request->done(request, false);
        return;
    }
    end(request, ucp_am_send_nbx(p->ep, MESSAGE_ID, head, head_bytes, body, bytes, &param));
}

static void ucx_fetch(void *state, void *data, void *to, size_t bytes, kolo_ucx_request *request) {
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv_am = fetched,
                                 .user_data = request};
    end(request, ucp_am_recv_data_nbx(((ucx_state *)state)->worker, data, to, bytes, &param));
}

static void ucx_release(void *state, void *data) {
    ucp_am_data_release(((ucx_state *)state)->worker, data);
}

static bool ucx_progress(void *state) {
    return ucp_worker_progress(((ucx_state *)state)->worker) != 0;
}

static bool ucx_arm(void *state) { return ucp_worker_arm(((ucx_state *)state)->worker) == UCS_OK; }

/* ---- close ---- */

static void close_peer(ucx_peer *p, bool force) {
    if (!p->ep) return;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = force || p->lost ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    ucs_status_ptr_t request = ucp_ep_close_nbx(p->ep, &param);
    p->ep = NULL;
    if (UCS_PTR_IS_PTR(request)) p->closing = request;
}

static void ucx_abort(void *state) {
    ucx_state *s = state;
    for (int p = 0; p < s->size; p++) close_peer(&s->peers[p], true);
}

static bool all_closed(ucx_state *s) {
    bool all = true;
    for (int i = 0; i < s->size; i++) {
        ucx_peer *p = &s->peers[i];
        if (!p->closing) continue;
        if (ucp_request_check_status(p->closing) == UCS_INPROGRESS) {
            all = false;
            continue;
        }
        ucp_request_free(p->closing);
        p->closing = NULL;
    }
    return all;
}

static void ucx_close(void *state) {
    ucx_state *s = state;
    for (int p = 0; p < s->size; p++) close_peer(&s->peers[p], false);
    int64_t until_ns = kolo_now_ns() + CLOSE_NS;
    while (!all_closed(s) && kolo_now_ns() < until_ns) (void)ucp_worker_progress(s->worker);
    for (int p = 0; p < s->size; p++) {
        if (s->peers[p].closing) ucp_request_free(s->peers[p].closing);
    }
    free_state(s);
}

KOLO_API const kolo_ucx_ops kolo_ucx_table = {
    .version = KOLO_UCX_VERSION,
    .open = ucx_open,
    .message_bytes = ucx_message_bytes,
    .address = ucx_address,
    .connect = ucx_connect,
    .send = ucx_send,
    .fetch = ucx_fetch,
    .release = ucx_release,
    .progress = ucx_progress,
    .arm = ucx_arm,
    .abort = ucx_abort,
    .close = ucx_close,
};
