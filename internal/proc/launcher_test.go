package proc

import "testing"

// made is a tree of processes: the number of each, its parent, environment and mask.
func made(processes map[string][3]string) map[string]string {
	files := map[string]string{}
	for pid, p := range processes {
		files["proc/"+pid+"/stat"] = "1 (a b) S " + p[0] + " 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
		if p[1] != "-" {
			files["proc/"+pid+"/environ"] = p[1]
		}
		if p[2] != "" {
			files["proc/"+pid+"/status"] = "Name:\tx\nCpus_allowed:\t" + p[2] + "\n"
		}
	}
	return files
}

func TestLauncherCores(t *testing.T) {
	const rank = "PATH=/bin\x00LOCAL_WORLD_SIZE=4\x00LOCAL_RANK=1\x00"
	const none = "PATH=/bin\x00NOT_LOCAL_WORLD_SIZE=1\x00TEXT=LOCAL_WORLD_SIZE=2\x00"
	const all, node = "ff,ffffffff", "f"
	for name, c := range map[string]struct {
		trainer   int
		processes map[string][3]string
		want      float64
	}{
		"started by the launcher": {7, map[string][3]string{"7": {"5", rank, node}, "5": {"1", none, all}}, 40},
		"behind numactl and a shell": {9, map[string][3]string{
			"9": {"8", rank, node}, "8": {"7", rank, node}, "7": {"5", rank, all}, "5": {"1", none, all}, "1": {"0", none, "1"},
		}, 40},
		"a launcher that is bound": {7, map[string][3]string{"7": {"5", rank, node}, "5": {"1", none, node}, "1": {"0", none, all}}, 4},
		// A child that a trainer has spawned starts without the variables that were set later.
		"spawned by a program":  {7, map[string][3]string{"7": {"5", none, node}, "5": {"1", none, all}}, 40},
		"this process":          {Self, map[string][3]string{"self": {"5", rank, node}, "5": {"1", none, all}}, 40},
		"one just ended":        {7, map[string][3]string{"7": {"5", rank, node}, "5": {"1", "-", all}}, 0},
		"in a namespace alone":  {7, map[string][3]string{"7": {"0", rank, node}}, 0},
		"one that is gone":      {7, map[string][3]string{"7": {"5", rank, node}}, 0},
		"without a mask":        {7, map[string][3]string{"7": {"5", rank, node}, "5": {"1", none, ""}}, 0},
		"all begun with it":     {7, map[string][3]string{"7": {"5", rank, node}, "5": {"1", rank, all}, "1": {"0", rank, all}}, 0},
		"processes in a circle": {7, map[string][3]string{"7": {"5", rank, node}, "5": {"7", rank, all}}, 0},
	} {
		got := root(t, made(c.processes)).LauncherCores(c.trainer, []string{"MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"})
		if got != c.want {
			t.Errorf("%s: %g cores, want %g", name, got, c.want)
		}
	}
	files := made(map[string][3]string{"7": {"5", rank, node}, "5": {"1", none, all}})
	files["proc/5/cgroup"], files["sys/fs/cgroup/job/cpu.max"], files["sys/fs/cgroup/job/cgroup.procs"] = "0::/job\n", "600000 100000\n", ""
	if got := root(t, files).LauncherCores(7, []string{"LOCAL_WORLD_SIZE"}); got != 6 {
		t.Errorf("%g cores with a quota, want 6", got)
	}
	files = made(map[string][3]string{"7": {"5", rank, node}, "5": {"1", "-", all}})
	files["proc/5/environ/unreadable"] = ""
	if got := root(t, files).LauncherCores(7, []string{"LOCAL_WORLD_SIZE"}); got != 40 {
		t.Errorf("%g cores of another user's launcher, want 40", got)
	}
	// For this process: the launcher of the tests.
	if got := Live.LauncherCores(Self, []string{"NO_SUCH_VARIABLE"}); got < 0 || got > 1<<16 {
		t.Errorf("%g cores here", got)
	}
}
