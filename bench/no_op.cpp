// no_op: the task of the jobs that bench/launch counts. Static, because the cluster's work is to be measured, not a dynamic linker's.
int main() { return 0; }
