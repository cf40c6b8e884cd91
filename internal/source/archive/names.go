package archive

import (
	"path"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
)

// unpackedName returns the path to which unpacking would write a member: relative, with "/" between its parts, without
// empty parts and ".". As in GNU tar, a leading "/" and everything up to the last ".." are dropped, and so is a drive
// letter. Backslashes separate the parts if there is no "/": programs on Windows write such names. It returns "" for
// a name that a file cannot have, such as that of a folder.
func unpackedName(name string) string {
	drive := len(name) > 2 && name[1] == ':' && (name[2] == '\\' || name[2] == '/') && isLetter(name[0])
	if drive {
		name = name[2:]
	}
	if drive || strings.IndexByte(name, '/') < 0 {
		name = strings.ReplaceAll(name, `\`, "/")
	}
	parts := strings.Split(name, "/")
	if end := parts[len(parts)-1]; end == "" || end == "." || end == ".." || strings.IndexByte(name, 0) >= 0 {
		return ""
	}
	kept := parts[:0]
	for _, part := range parts {
		switch part {
		case "", ".":
		case "..":
			kept = kept[:0]
		default:
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "/")
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// Split splits a member's name into the key, which all members of a sample share, and the suffix, which identifies
// the member in its sample. As in the webdataset library, the key ends at the first dot of the base name. ok is
// false for members that are not part of a sample.
func Split(name string) (key, suffix string, ok bool) {
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[base:], '.')
	switch {
	case dot > 0:
		return name[:base+dot], name[base+dot+1:], true
	case dot < 0 || base == 0:
		return "", "", false
	}
	// A hidden file: its folder is the key, unless the folder has a dot in its name.
	folder := name[strings.LastIndexByte(name[:base-1], '/')+1 : base]
	if strings.IndexByte(folder, '.') >= 0 {
		return "", "", false
	}
	return name[:base], name[base+1:], true
}

// meta reports whether a member describes the archive. As in the webdataset library, the first part of its name
// begins and ends with two underscores.
func meta(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.HasPrefix(first, "__") && strings.HasSuffix(first, "__") && len(first) >= 4
}

// hidden reports whether a member has no name, is hidden or was added by a file manager.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") && part != "." && part != ".." {
			return true
		}
	}
	return name == "" || selection.Litter(name) != "" || selection.System(name)
}

// meaning is what a suffix tells about a member: its field and the kind of its value.
type meaning struct {
	name string
	kind driver.Kind
	npy  bool
	maps bool
}

// meaningOf parses a suffix in lower case: jpg is an image, seg.png a mask.
func meaningOf(suffix string) meaning {
	name, ext := "", suffix
	if dot := strings.LastIndexByte(suffix, '.'); dot >= 0 {
		name, ext = suffix[:dot], suffix[dot+1:]
	}
	m := meaning{name: name}
	usual := ""
	switch ext {
	case "cls":
		usual, m.kind = "label", driver.KindLabel
	case "cls2":
		usual, m.kind = ext, driver.KindLabel
	case "inx", "id", "index":
		usual, m.kind = ext, driver.KindInt
	case "txt", "text", "transcript":
		usual, m.kind = "text", driver.KindText
	case "json", "jsn":
		usual, m.kind = "json", driver.KindJSON
	case "npy":
		usual, m.kind, m.npy = "array", driver.KindArray, true
	default:
		// Pickles and other types that only code can read are bytes.
		field := name
		if name == "seg" {
			field = "mask"
		}
		m.kind = filelist.KindOf(field, "."+ext)
		switch m.kind {
		case driver.KindImage:
			if usual, m.maps = "image", ext == "pfm" || ext == "flo"; m.maps {
				usual = ext
			}
		case driver.KindMask:
			usual = "mask"
		case driver.KindAudio:
			usual = "audio"
		default:
			usual, m.name = suffix, ""
		}
	}
	if m.name == "" {
		m.name = usual
	}
	return m
}

// extension returns the last extension of a file name, in lower case and without the dot.
func extension(name string) string {
	return strings.ToLower(strings.TrimPrefix(path.Ext(path.Base(name)), "."))
}
