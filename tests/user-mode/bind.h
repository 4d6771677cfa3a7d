/*
 * A processor of a user-mode kernel is a thread of the machine, and each of its processes is a process of the machine.
 * At a system call, one waits for the other. This binds both to one processor of the machine: woken on another one,
 * each would wait for it to leave its idle state.
 */
#include <smp.h>

/* Binds the calling thread, and the process that it is about to run. Without permission, both stay as they are. */
static void bind_process(struct mm_id *process)
{
	static __thread int is_bound;
	unsigned long processors = 1UL << uml_curr_cpu();

	if (!is_bound)
		syscall(__NR_sched_setaffinity, 0, sizeof(processors), &processors);
	is_bound = 1;
	if (process->bound != uml_curr_cpu() + 1)
		syscall(__NR_sched_setaffinity, process->pid, sizeof(processors), &processors);
	process->bound = uml_curr_cpu() + 1;
}
