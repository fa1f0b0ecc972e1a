// no_op: the task of the jobs that bench/launch counts. Static: what is counted is the cluster's work, not a dynamic linker's.
int main() { return 0; }
