// Reading mapped files: a page that the file no longer has, or that the disk
// cannot read, raises SIGBUS in the middle of a decoder. That ends the decoder's
// call with SK_UNREADABLE, and not the process.
//
// Signal handlers belong to the process. This one is installed before the existing one (Go's runtime installs one
// before any of this is called) and passes on signals that are not its own. It is the only state that this library
// shares.
#include "sk.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

static _Thread_local sk_guard *guarded; // the jump target of this thread's call
static struct sigaction before;

static void on_bus(int number, siginfo_t *info, void *context)
{
	sk_guard *g = guarded;
	if (g != NULL) {
		guarded = NULL;
		siglongjmp(g->back, 1); // the signal is not blocked: SA_NODEFER
	}
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	} else { // as without us: the instruction is run again, and ends the process
		signal(SIGBUS, SIG_DFL);
	}
}

static void install(void)
{
	struct sigaction ours;
	memset(&ours, 0, sizeof(ours));
	ours.sa_sigaction = on_bus;
	// Go's runtime requires handlers to use the alternate stack.
	ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigemptyset(&ours.sa_mask);
	if (sigaction(SIGBUS, NULL, &before) == 0)
		sigaction(SIGBUS, &ours, NULL);
}

int sk_guard_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	return pthread_once(&once, install);
}

void sk_guard_on(sk_guard *g) { guarded = g; }

void sk_guard_off(void) { guarded = NULL; }
