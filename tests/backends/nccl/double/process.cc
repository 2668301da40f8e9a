// A rank of the benchmark (compiled with -Dmain=bench_main) as a process of its own.
int bench_main(int argc, char** argv);

int main(int argc, char** argv) { return bench_main(argc, argv); }
