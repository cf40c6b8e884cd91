package quickstart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/source"
)

// A Program is a training script of the user.
type Program struct {
	Path string
	// Loaders are the lines that load data, with what they use.
	Loaders []Use
	// Torch reports that there is a loader that stoker run takes over if it recognises the dataset.
	Torch bool
	// Data is the path of a dataset that the script names and that can be opened, "" for none.
	Data string
}

// A Use is a line of a script.
type Use struct {
	Line int
	What string
}

// mostProgram is the largest script that is read.
const mostProgram = 4 << 20

// uses are what is looked for in a script. Those with torch are loaders of PyTorch, or frameworks that make one.
var uses = []struct {
	pattern *regexp.Regexp
	what    string
	torch   bool
}{
	{regexp.MustCompile(`\bstoker\.(Loader|open)\(`), "Stoker", false},
	{regexp.MustCompile(`\bDataLoader\(`), "PyTorch's DataLoader", true},
	{regexp.MustCompile(`\b(ImageFolder|DatasetFolder)\(`), "torchvision's ImageFolder", true},
	{regexp.MustCompile(`\bload_dataset\(`), "Hugging Face datasets", true},
	{regexp.MustCompile(`\b(?:pl|L|lightning|pytorch_lightning)\.Trainer\(`), "Lightning", true},
	{regexp.MustCompile(`\bcreate_loader\(`), "timm's create_loader", true},
	{regexp.MustCompile(`\btf\.data\b|\bimage_dataset_from_directory\(`), "tf.data", false},
	{regexp.MustCompile(`\bStreamingDataset\(`), "StreamingDataset", true},
	{regexp.MustCompile(`\bwds\.WebDataset\(|\bwebdataset\.`), "WebDataset", false},
	{regexp.MustCompile(`\bffcv\.`), "FFCV", false},
	{regexp.MustCompile(`\bnvidia\.dali\b`), "DALI", false},
}

// quotes finds short texts between quotes.
var quotes = regexp.MustCompile(`"([^"\n]{1,300})"|'([^'\n]{1,300})'`)

// IsProgram reports whether a path is that of a Python script.
func IsProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && strings.EqualFold(filepath.Ext(path), ".py")
}

// LookProgram reads a script. It does not run it.
func LookProgram(ctx context.Context, path string) (*Program, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > mostProgram {
		return nil, fmt.Errorf("%s is %d MiB large, which is no training script", path, st.Size()>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path}
	for i, line := range strings.Split(string(text), "\n") {
		code, _, _ := strings.Cut(line, "#")
		for _, u := range uses {
			if u.pattern.MatchString(code) && !strings.HasPrefix(strings.TrimSpace(code), "import ") {
				p.Loaders = append(p.Loaders, Use{i + 1, u.what})
				p.Torch = p.Torch || u.torch
			}
		}
		if p.Data == "" {
			p.Data = named(ctx, path, code)
		}
	}
	return p, nil
}

// named returns the first text of a line that is the path of a dataset, from the current folder or that of the script.
func named(ctx context.Context, script, code string) string {
	for _, m := range quotes.FindAllStringSubmatch(code, -1) {
		text := m[1] + m[2]
		if strings.Trim(text, "./ ") == "" {
			continue
		}
		for _, path := range slices.Compact([]string{text, filepath.Join(filepath.Dir(script), text)}) {
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if src, err := source.Open(ctx, path, nil); err == nil {
				src.Close()
				return path
			}
		}
	}
	return ""
}
