package proc

import (
	"strconv"
)

// ParseChildren reads /proc/PID/task/TID/children.
func ParseChildren(data []byte) []int {
	var out []int
	f := fields(data)
	for b := f.next(); len(b) > 0; b = f.next() {
		if pid := int(parseUint(b)); pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// Children returns the processes that the threads of a process have started. ok is false on kernels without that list
// (CONFIG_PROC_CHILDREN).
func (fs FS) Children(pid int) (children []int, ok bool) {
	tids, err := fs.Numbers(strconv.Itoa(pid), "task")
	if err != nil {
		return nil, true // it has ended
	}
	for _, tid := range tids {
		data, err := fs.Thread(nil, pid, tid, "children")
		if err == nil {
			children = append(children, ParseChildren(data)...)
			continue
		}
		if _, err := fs.Thread(nil, pid, tid, "stat"); err == nil {
			return nil, false
		}
	}
	return children, true
}

// Tree returns the live descendants of root, and root.
func (fs FS) Tree(root int) []int {
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		children, ok := fs.Children(tree[i])
		if !ok {
			return fs.scanTree(root)
		}
		tree = append(tree, children...)
	}
	return tree
}

// scanTree is Tree by the parents of all processes.
func (fs FS) scanTree(root int) []int {
	pids, err := fs.Numbers()
	if err != nil {
		return []int{root}
	}
	children := map[int][]int{}
	for _, pid := range pids {
		data, err := fs.Process(nil, pid, "stat")
		if err != nil {
			continue
		}
		if s, err := ParseStat(data); err == nil {
			children[s.PPID] = append(children[s.PPID], pid)
		}
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}
