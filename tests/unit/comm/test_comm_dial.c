/* Connections on demand to a peer that stops in the middle of the handshake: the threads that make
 * them end soon nevertheless. This thread is the peer. The handshake itself may take ten minutes,
 * so a test that waits for it is ended by the runner. */
#include "base/clock.h"
#include "comm/join/dial.h"
#include "support/support.h"

#include <unistd.h>

/* In a ring, ranks 0 and 2 are not connected at first. */
enum { RANKS = 6, PEER = 2, ACCEPTED = 1, HEARTBEAT_MS = 600000 };

typedef struct scene {
    kolo_joining joining;
    kolo_hello table[RANKS];
    int hosts[RANKS];
    kolo_dialer *dialer; /* of rank 0 */
    int port, peer_listener;
    int64_t deadline_ns;
} scene;

static int listen_at_any_port(int *port) {
    char address[KOLO_ADDRESS_BYTES];
    int fd;
    ASSERT_OK(kolo_socket_listen_tcp("127.0.0.1", 0, &fd));
    ASSERT_OK(kolo_socket_own_address(fd, address, port));
    return fd;
}

static void open_scene(scene *s) {
    unsigned char secret[32];
    int peer_port;
    *s = (scene){.deadline_ns = kolo_now_ns() + INT64_C(20000000000)};
    kolo_joining *j = &s->joining;
    s->peer_listener = listen_at_any_port(&peer_port);
    for (int r = 0; r < RANKS; r++) {
        s->hosts[r] = r;
        s->table[r] = (kolo_hello){.rank = r,
                                   .world = RANKS,
                                   .address = "127.0.0.1",
                                   .port = peer_port,
                                   .connections = KOLO_CONNECTIONS_RING};
    }
    j->env.world = RANKS;
    j->opts = (kolo_comm_opts){.encrypt = true, .heartbeat_ms = HEARTBEAT_MS};
    j->own = s->table[0];
    j->table = s->table;
    j->host_of = s->hosts;
    j->n_hosts = RANKS;
    j->choice = kolo_transport_info_of(KOLO_TRANSPORT_TCP);
    j->tcp_listener = listen_at_any_port(&s->port);
    ASSERT_OK(kolo_key_draw(secret, sizeof secret, &j->key));
    ASSERT_OK(kolo_dialer_create(j, &s->dialer));
}

static void close_scene(scene *s) {
    s->dialer->ops->destroy(s->dialer);
    kolo_key_clear(&s->joining.key);
    close(s->peer_listener);
}

/* The peer has connected, and does not send its half of the keys. */
static void an_accepted_peer_that_stops_is_cut_off(void **state) {
    scene s;
    kolo_nonces nonces;
    unsigned char half[KOLO_EXCHANGE_BYTES];
    int32_t answer = 0;
    int fd;
    open_scene(&s);
    const kolo_key *key = &s.joining.key;
    ASSERT_OK(kolo_socket_connect_tcp("127.0.0.1", s.port, s.deadline_ns, &fd));
    ASSERT_OK(kolo_handshake_connect(fd, key, &s.table[PEER], s.deadline_ns, &nonces));
    ASSERT_OK(kolo_handshake_recv(fd, key, "kolo link", &nonces, &answer, sizeof answer, NULL,
                                  s.deadline_ns));
    assert_int_equal(answer, ACCEPTED);
    ASSERT_OK(kolo_handshake_recv(fd, key, "kolo half of the server", &nonces, half, sizeof half,
                                  NULL, s.deadline_ns));
    close_scene(&s);
    assert_true(kolo_socket_readable(fd, s.deadline_ns) && kolo_socket_closed(fd));
    close(fd);
}

/* The kernel of the peer takes the connection, the peer does not. */
static void a_peer_that_does_not_accept_is_cut_off(void **state) {
    scene s;
    open_scene(&s);
    s.dialer->ops->want(s.dialer, PEER);
    assert_true(kolo_socket_readable(s.peer_listener, s.deadline_ns)); /* it has connected */
    close_scene(&s);
}

TEST_MAIN(test_comm_dial) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_peer_that_stops_is_cut_off),
        cmocka_unit_test(a_peer_that_does_not_accept_is_cut_off),
    };
    return cmocka_run_group_tests_name("comm_dial", tests, NULL, NULL);
}
