package lease

import (
	"io"
	"os"
	"slices"
	"strings"
)

// maxFile is the maximum number of bytes of a file that go into a key.
const maxFile = 1 << 20

// Key returns a key for Shared, with everything that decides which credentials are found. These are some words, the
// environment variables that start with a prefix in variables, and the content of files that exist. The key may
// contain secrets.
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

// content returns the content of a small file, "" if it cannot be read.
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
