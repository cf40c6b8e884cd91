package proc

import "bytes"

// maxAncestors limits the search for a launcher.
const maxAncestors = 32

// LauncherCores returns the number of cores that the processes of a job on this machine may use together: those of the
// launcher. Launchers set variables for their children but have none of them themselves. So the launcher is the first
// process above trainer without these variables; a shell or numactl in between has them. The result is 0 if that is
// unknown.
func (fs FS) LauncherCores(trainer int, variables []string) float64 {
	pid := fs.Parent(trainer)
	for range maxAncestors {
		if pid <= 0 {
			break
		}
		env, err := fs.Process(nil, pid, "environ")
		switch {
		case err != nil && Gone(err):
			return 0
		case err != nil || !sets(env, variables): // another user's process was not started by the launcher
			return fs.UsableCoresOf(pid)
		}
		pid = fs.Parent(pid)
	}
	return 0
}

// Parent returns the number of the process that started a process, 0 if it is unknown.
func (fs FS) Parent(pid int) int {
	data, err := fs.Process(nil, pid, "stat")
	if err != nil {
		return 0
	}
	st, err := ParseStat(data)
	if err != nil {
		return 0
	}
	return st.PPID
}

// sets reports whether an environment has one of the variables.
func sets(env []byte, variables []string) bool {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		name, _, _ := bytes.Cut(v, []byte{'='})
		for _, want := range variables {
			if string(name) == want {
				return true
			}
		}
	}
	return false
}
