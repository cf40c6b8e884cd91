package lease

import (
	"io"
	"os"
	"slices"
	"strings"
)

// maxFile bounds what is read of a file for a key.
const maxFile = 1 << 20

// Key is a key for Shared: everything that decides which credentials are found. These
// are words of any kind, the variables of the environment that begin in one of some
// ways, and the content of files, as far as they are there. It may have secrets in it.
func Key(kind string, words, variables, files []string) string {
	all := append([]string{kind}, words...)
	env := os.Environ()
	slices.Sort(env)
	for _, v := range env {
		if slices.ContainsFunc(variables, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			all = append(all, v)
		}
	}
	for _, name := range files {
		all = append(all, name+"\x00"+content(name))
	}
	return strings.Join(all, "\x01")
}

// content is that of a small file, "" of what cannot be read.
func content(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return ""
	}
	return string(b)
}
