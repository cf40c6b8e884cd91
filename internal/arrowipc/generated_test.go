package arrowipc

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What flatbuf/arrow_generated.go was made with and of. Whoever changes arrow.fbs
// runs go generate and puts down here what the test below then says.
const (
	generatorVersion = "flatc version 2.0.8"
	generatedSum     = "d3d7dd585b44dee95cab65b9fff06025cdfe48d12aac9f49ec16bb2a1f66386b"
)

// The generated file is what the compiler makes of arrow.fbs, where it is at hand;
// elsewhere both are what they were then.
func TestGenerated(t *testing.T) {
	schema, generated := read(t, "flatbuf/arrow.fbs"), read(t, "flatbuf/arrow_generated.go")
	if sum := fmt.Sprintf("%x", sha256.Sum256(append(bytes.Clone(schema), generated...))); sum != generatedSum {
		t.Errorf("arrow.fbs or arrow_generated.go has changed: run go generate, then set generatedSum to %s", sum)
	}
	version, err := exec.Command("flatc", "--version").Output()
	if err != nil || strings.TrimSpace(string(version)) != generatorVersion {
		t.Skipf("%s is not here (Debian: flatbuffers-compiler): %s %v", generatorVersion, version, err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("flatc", "--go", "--gen-onefile", "--go-namespace", "flatbuf", "-o", dir, "flatbuf/arrow.fbs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := filepath.Join(dir, "arrow_generated.go")
	if out, err := exec.Command("gofmt", "-w", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Equal(read(t, name), generated) {
		t.Error("arrow_generated.go is not what flatc makes of arrow.fbs: run go generate")
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The numbers of tables, fields and members of unions are those of Arrow's own
// definitions, as arrow-go has generated its code from them.
func TestNumbersAreArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/apache/arrow-go/v18").Output()
	theirs := filepath.Join(strings.TrimSpace(string(out)), "arrow/internal/flatbuf")
	if err != nil {
		t.Skipf("the source of arrow-go is not here: %v", err)
	}
	want, err := numbers(theirs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := numbers("flatbuf")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 100 {
		t.Fatalf("%d names were found", len(got))
	}
	for name, n := range got {
		if w, ok := want[name]; !ok || !slices.Equal(n, w) {
			t.Errorf("%s has the numbers %v, Arrow's %v (%v)", name, n, w, ok)
		}
	}
}

// numbers reads, of generated code, the numbers in the functions that read and write
// fields, and the constants.
func numbers(dir string) (map[string][]string, error) {
	found := map[string][]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no code in %s: %w", dir, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					if e, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok {
						name = e.X.(*ast.Ident).Name + "." + name
					}
				}
				// How many fields a table has depends on how many of the last are left out.
				// Functions for the root of a file are there in some versions only.
				if strings.HasSuffix(name, "Start") || strings.Contains(name, "Root") {
					continue
				}
				found[name] = literals(d.Body)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.CONST {
						found[v.Names[0].Name] = literals(v.Values[0])
					}
				}
			}
		}
	}
	return found, nil
}

func literals(n ast.Node) (found []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.INT {
			found = append(found, l.Value)
		}
		return true
	})
	return found
}
