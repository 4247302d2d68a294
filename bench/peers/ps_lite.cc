// Pushes and pulls of ps-lite, measured as kolo_bench_ps does; built and started by ps_lite.py.
//
//     ps_lite BUDGET_SECONDS BYTES...
//
// Each worker pushes a vector to the servers, which keep a copy for each worker, and pulls it back,
// without waiting for the other workers. Keys have long values, which ps-lite does not copy. Each
// size is measured with one key for each server, and with keys for pieces of 512 KiB, all of them in
// flight. A push and its pull are one request, since servers do not keep the order of requests. A
// worker prints: its rank, bytes, pieces, iterations, the microseconds of all of them, and their
// median.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "ps/ps.h"

namespace {

enum { PIECE_BYTES = 512 << 10, PIECES_MOST = 128, WARM_UP = 2, ITERATIONS_LEAST = 5 };

using Keys = ps::SArray<ps::Key>;
using Bytes = ps::SArray<char>;

double now_us() {
  using namespace std::chrono;
  return 1e-3 * duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// ---- the server ----

std::map<std::pair<int, ps::Key>, std::vector<char>> store;

void serve(const ps::KVMeta &meta, const ps::KVPairs<char> &data, ps::KVServer<char> *server) {
  std::vector<char> &own = store[{meta.sender, data.keys[0]}];
  ps::KVPairs<char> reply;
  if (meta.push) {
    own.resize(data.vals.size());
    memcpy(own.data(), data.vals.data(), own.size());
  }
  if (meta.pull) {
    reply.keys = data.keys;
    reply.vals = Bytes(own.data(), own.size(), false);
  }
  server->Response(meta, reply);
}

// ---- a worker ----

struct Piece {
  Keys key;
  Bytes pushed, pulled;
};

// A vector: each server has a range of it, in so many pieces.
struct Vector {
  std::vector<char> out, in;
  std::vector<Piece> pieces;

  Vector(size_t bytes, size_t n) : out(bytes), in(bytes) {
    const std::vector<ps::Range> &servers = ps::Postoffice::Get()->GetServerKeyRanges();
    const size_t all = n * servers.size();
    for (size_t i = 0; i < all; i++) {
      const size_t at = bytes * i / all, end = bytes * (i + 1) / all;
      const ps::Key key = servers[i / n].begin() + i % n;
      pieces.push_back({Keys(1, key), Bytes(out.data() + at, end - at, false),
                        Bytes(in.data() + at, end - at, false)});
    }
    for (size_t i = 0; i < bytes; i++) out[i] = (char)(i * 31 + i / 509);
  }
};

void exchange(ps::KVWorker<char> &worker, Vector &v) {
  std::vector<int> open;
  for (Piece &p : v.pieces) open.push_back(worker.ZPushPull(p.key, p.pushed, &p.pulled));
  for (int request : open) worker.Wait(request);
}

void measure(ps::KVWorker<char> &worker, double budget, size_t bytes, size_t n) {
  Vector v(bytes, n);
  std::vector<double> us;
  for (int i = 0; i < WARM_UP; i++) exchange(worker, v);
  if (v.in != v.out) {
    fprintf(stderr, "ps_lite: a pull of %zu bytes gave other data than was pushed\n", bytes);
    exit(1);
  }
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  const double begin = now_us();
  while (now_us() - begin < 1e6 * budget || us.size() < ITERATIONS_LEAST) {
    const double start = now_us();
    exchange(worker, v);
    us.push_back(now_us() - start);
  }
  const double wall = now_us() - begin;
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  std::sort(us.begin(), us.end());
  printf("%d %zu %zu %zu %.3f %.3f\n", ps::MyRank(), bytes, n, us.size(), wall, us[us.size() / 2]);
  fflush(stdout);
}

void work(double budget, int n_sizes, char **sizes) {
  ps::KVWorker<char> worker(0, 0);
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup + ps::kServerGroup);
  for (int i = 0; i < n_sizes; i++) {
    const size_t bytes = strtoull(sizes[i], nullptr, 10);
    const size_t most = bytes / ps::NumServers() / PIECE_BYTES;
    measure(worker, budget, bytes, 1);
    if (most > 1) measure(worker, budget, bytes, std::min(most, (size_t)PIECES_MOST));
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: ps_lite BUDGET_SECONDS BYTES...\n");
    return 2;
  }
  ps::Start(0);
  ps::KVServer<char> *server = nullptr;
  if (ps::IsServer()) {
    server = new ps::KVServer<char>(0);
    server->set_request_handle(serve);
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup + ps::kServerGroup);
  }
  if (ps::IsWorker()) work(strtod(argv[1], nullptr), argc - 2, argv + 2);
  ps::Finalize(0, true);
  delete server;
  return 0;
}
