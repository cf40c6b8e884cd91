package idxsource

import (
	"path/filepath"
	"strings"

	"github.com/stokerdata/stoker/store"
)

// Images and labels are in two files, whose names differ in one word:
//

// pair has the files of a split.
type pair struct {
	split          string
	images, labels store.Entry
}

// word splits the name of such a file into the part before "images" or "labels" and that word.
func word(name string) (split, what string) {
	name = strings.TrimSuffix(name, ".gz")
	for _, w := range []string{"images", "labels"} {
		before, after, ok := strings.Cut(name, w)
		if ok && strings.HasPrefix(strings.TrimLeft(after, "-._"), "idx") {
			return strings.TrimRight(before, "-._"), w
		}
	}
	return "", ""
}

// IsName reports whether a file has a name of such a pair.
func IsName(name string) bool {
	_, what := word(name)
	return what != ""
}

// HasPair reports whether names contain images and their labels.
func HasPair(names []string) bool {
	images := map[string]bool{}
	for _, n := range names {
		if split, what := word(n); what == "images" {
			images[split] = true
		}
	}
	for _, n := range names {
		if split, what := word(n); what == "labels" && images[split] {
			return true
		}
	}
	return false
}

// pairs finds the pairs of images and labels, in the order of the names. If a file exists with and without
// compression, the uncompressed one is used.
func pairs(files []store.Entry) []pair {
	var out []pair
	find := func(split, what string) (store.Entry, bool) {
		for _, e := range files { // "x" comes before "x.gz"
			if s, w := word(e.Name); s == split && w == what {
				return e, true
			}
		}
		return store.Entry{}, false
	}
	for _, e := range files {
		split, what := word(e.Name)
		if what != "images" || len(out) > 0 && out[len(out)-1].split == split {
			continue
		}
		if labels, ok := find(split, "labels"); ok {
			out = append(out, pair{split, e, labels})
		}
	}
	return out
}

// splitName returns the name in have that the user means with want. MNIST's test images have the name t10k, and
// EMNIST's names have a prefix.
func splitName(have []string, want string) string {
	for _, name := range have {
		if name == want {
			return want
		}
	}
	for _, end := range []string{want, map[string]string{"test": "t10k"}[want]} {
		found := ""
		for _, name := range have {
			if end != "" && (name == end || strings.HasSuffix(name, "-"+end)) {
				if found != "" {
					return want // ambiguous: the error will list them
				}
				found = name
			}
		}
		if found != "" {
			return found
		}
	}
	return want
}

var (
	digits      = []string{"0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"}
	fashion     = []string{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"}
	kuzushiji   = []string{"o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"}
	plainDigits = letters("0123456789")
)

func letters(s string) []string { return strings.Split(s, "") }

// classes returns torchvision's class names of the known data sets, nil for others. EMNIST is recognised by the
// names of its files, the other data sets by the name of their folder (FashionMNIST/raw).
func classes(folder, split string) []string {
	const upper, lower = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
	if part, ok := strings.CutPrefix(split, "emnist-"); ok {
		part, _, _ = strings.Cut(part, "-")
		switch part {
		case "byclass":
			return letters("0123456789" + upper + lower)
		case "bymerge", "balanced": // lower case that looks like upper case shares its class
			return letters("0123456789" + upper + "abdefghnqrt")
		case "letters":
			return append([]string{"N/A"}, letters(lower)...)
		case "digits", "mnist":
			return plainDigits
		}
		return nil
	}
	if strings.HasPrefix(split, "qmnist") || split == "xnist" {
		return digits
	}
	if abs, err := filepath.Abs(folder); err == nil {
		folder = abs // the name may be "." or "raw"
	}
	up, last := filepath.Split(folder)
	folder = strings.ToLower(filepath.Base(up) + "/" + last)
	switch {
	case strings.Contains(folder, "fashion"):
		return fashion
	case strings.Contains(folder, "kmnist"), strings.Contains(folder, "kuzushiji"):
		return kuzushiji
	case strings.Contains(folder, "emnist"):
		return nil
	case strings.Contains(folder, "mnist"):
		return digits
	}
	return nil
}
