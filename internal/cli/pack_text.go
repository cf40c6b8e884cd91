package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/wrap/tokenized"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/tokenizer"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// textFlags are those of pack that are about text.
type textFlags struct {
	tokenizer, encoding, field, end string
}

// anyEnd selects the token that ends documents by its usual name.
const anyEnd = "auto"

func (f *textFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.tokenizer, "tokenizer", "", "make tokens of text: `FILE` is a tokenizer.json, or a file of ranks of tiktoken")
	fl.StringVar(&f.encoding, "encoding", "", "with --tokenizer: the `NAME` of tiktoken's encoding, where the file's does not say it")
	fl.StringVar(&f.field, "text-field", "", "with --tokenizer: the `NAME` of the field of text (default text, or the only one)")
	fl.StringVar(&f.end, "append-eos", "", "with --tokenizer: append the token that ends a document to each; `=TEXT` names the token")
	fl.Lookup("append-eos").NoOptDefVal = anyEnd
}

func (f *textFlags) any() bool { return *f != textFlags{} }

// tokenizerHint names the required file, and its path in the cache of Hugging Face for the name of a model.
func tokenizerHint(name string) string {
	hub := os.Getenv("HF_HOME")
	if home, err := os.UserHomeDir(); err == nil && hub == "" {
		hub = filepath.Join(home, ".cache", "huggingface")
	}
	model := "models--" + strings.ReplaceAll(name, "/", "--")
	if found, _ := filepath.Glob(filepath.Join(hub, "hub", model, "snapshots", "*", "tokenizer.json")); len(found) > 0 {
		return "--tokenizer takes a file: --tokenizer " + units.Shell(found[len(found)-1])
	}
	return "--tokenizer takes a file: the tokenizer.json of a model (on Hugging Face next to its weights), or a file of ranks such as cl100k_base.tiktoken"
}

// load reads the tokenizer.
func (f *textFlags) load() (*tokenized.Options, error) {
	if f.tokenizer == "" {
		return nil, usageError("", "--encoding, --text-field and --append-eos are about text that becomes tokens: give --tokenizer, too")
	}
	t, err := tokenizer.Load(f.tokenizer, &tokenizer.Options{Encoding: f.encoding})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Msg: fmt.Sprintf("cannot read the tokenizer %s: no such file", f.tokenizer), Hint: tokenizerHint(f.tokenizer)}
	}
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(f.tokenizer)
	if err != nil {
		return nil, err
	}
	o := &tokenized.Options{Tokenizer: t, Text: f.field, End: -1, Hash: fmt.Sprintf("%016x %s", xxh3.Hash(b), f.encoding)}
	switch f.end {
	case "":
		return o, nil
	case anyEnd:
		_, id, ok := t.End()
		if !ok {
			return nil, usageError("", "--append-eos: the tokenizer has no token by a name that says that it ends a document; write --append-eos=TEXT")
		}
		o.End = int64(id)
	default:
		id, ok := t.Special(f.end)
		if !ok {
			return nil, usageError("", "--append-eos: the tokenizer has no special token %q", f.end)
		}
		o.End = int64(id)
	}
	return o, nil
}

// writeTokens packs the texts that src is as tokens.
func writeTokens(app *App, src, out string, fields []string, look viewFlags, flags *textFlags, opt *pack.Options) (*pack.Summary, error) {
	to, err := flags.load()
	if err != nil {
		return nil, err
	}
	to.Keep = len(fields) > 0
	if src, err = textSource(app, src, fields, to); err != nil {
		return nil, err
	}
	base, err := app.openSource(look.url(src), opt.Threads, opt.Memory)
	if err != nil {
		return nil, err
	}
	s, err := tokenized.Open(base, to)
	if err != nil {
		_ = base.Close() // the refusal is what counts
		return nil, err
	}
	defer s.Close()
	return pack.WriteSource(app.Context, s, out, opt)
}

// ofText adds to the error for plain text that a tokenizer makes tokens of it.
func ofText(path string, err error) error {
	if err == nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(path, "*"))
	if len(files) == 0 {
		files = []string{path}
	}
	if _, serr := os.Stat(files[0]); serr != nil || slices.ContainsFunc(files, func(f string) bool { return !strings.EqualFold(filepath.Ext(f), ".txt") }) {
		return err
	}
	return &Error{Msg: err.Error(), Hint: "to make tokens of text: stoker pack " + units.Shell(path) + " tokens/ --tokenizer tokenizer.json"}
}

// textSource returns the URL of src for reading texts. A column of a table is read as text, whatever it looks like.
// Files of no other kind are read as texts.
func textSource(app *App, src string, fields []string, to *tokenized.Options) (string, error) {
	format, _, err := source.Format(app.Context, src, nil)
	if err != nil || format == source.FormatFolder {
		if _, serr := os.Stat(src); serr == nil {
			format, src = "files", "files:"+src
		} else if err != nil {
			return "", err
		}
	}
	switch {
	case !source.IsTable(format) && len(fields) > 0:
		return withFields(app, src, fields)
	case !source.IsTable(format):
		return src, nil
	}
	if to.Text == "" {
		to.Text = "text"
	}
	columns := []column.Want{}
	for _, text := range fields {
		c, err := column.Parse(text)
		if err != nil {
			return "", usageError("", "--field: %v", err)
		}
		columns = append(columns, c)
	}
	if !slices.ContainsFunc(columns, func(c column.Want) bool { return c.Name == to.Text }) {
		columns = append(columns, column.Want{Name: to.Text, Kind: driver.KindText, From: to.Text})
	}
	return stores.Ask(src, column.Query(columns...)), nil
}
