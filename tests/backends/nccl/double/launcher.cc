// Runs the benchmark of an emitted project (compiled with -Dmain=bench_main) with its ranks as threads.
//
//   launcher RANKS options of the benchmark...
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

int bench_main(int argc, char** argv);

int main(int argc, char** argv) {
  const int ranks = std::atoi(argv[1]);
  std::vector<int> codes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<std::string> words = {"bench", "--rank", std::to_string(rank), "--ranks", argv[1]};
      words.insert(words.end(), argv + 2, argv + argc);
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      codes[rank] = bench_main(static_cast<int>(pointers.size()), pointers.data());
    });
  for (std::thread& thread : threads) thread.join();
  for (int code : codes)
    if (code) return code;
  return 0;
}
