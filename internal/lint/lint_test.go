// Package lint holds the rules of this code base that no tool knows, as tests. They define the imports that are allowed
// and the packages that may use C and unsafe. They require a comment on every exported name.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/stokerdata/stoker"

// root is the top of the repository, from here.
const root = "../.."

// stages are the steps of the pipeline. They meet through internal/item, in
// internal/pipeline and, from decode to collate, in internal/kind.
var stages = []string{
	"internal/sampler", "internal/fetch", "internal/decode",
	"internal/transform", "internal/collate", "internal/handoff",
}

// lowLevel are the packages that may use cgo and unsafe.
var lowLevel = []string{"internal/cdec", "internal/csound", "internal/videodec", "internal/imagelib", "internal/dynlib", "internal/arena", "internal/ioqueue"}

// A file is a parsed Go file.
type file struct {
	name string // path from root
	dir  string // package, as a path from root; "." for the root package
	ast  *ast.File
}

func (f *file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		paths = append(paths, p)
	}
	return paths
}

var fset = token.NewFileSet()

// position returns the file and line of a node, for messages.
func position(n ast.Node) string {
	p := fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.ToSlash(strings.TrimPrefix(p.Filename, root+string(filepath.Separator))), p.Line)
}

// parseAll parses every Go file of the module that is not a test, for all
// platforms; parseTests the others.
func parseAll(t *testing.T) []*file   { return parseFiles(t, false) }
func parseTests(t *testing.T) []*file { return parseFiles(t, true) }

func parseFiles(t *testing.T, tests bool) []*file {
	t.Helper()
	var files []*file
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "work", "build", "bin", "dist", "demo-data", "python"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") != tests:
			return nil
		}
		parsed, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files = append(files, &file{name: rel, dir: path.Dir(rel), ast: parsed})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found %d files: this test looks in the wrong place", len(files))
	}
	return files
}

// local turns an import path into a path from root, "" for other modules.
func local(importPath string) string {
	if importPath == module {
		return "."
	}
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return rest
}

// within reports whether package dir is one of parents or lies below one.
func within(dir string, parents ...string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return dir == p || strings.HasPrefix(dir, p+"/") })
}

func TestStagesDoNotImportEachOther(t *testing.T) {
	for _, f := range parseAll(t) {
		from := slices.IndexFunc(stages, func(s string) bool { return within(f.dir, s) })
		if from < 0 {
			continue
		}
		for _, imported := range f.imports() {
			if to := local(imported); to != "" && within(to, stages...) && !within(to, stages[from]) {
				t.Errorf("%s: stage %s imports stage %s; let them meet through internal/item, in internal/pipeline or internal/kind", f.name, stages[from], to)
			}
		}
	}
}

// Wrappers hide a source's abilities from a type assertion: driver.As finds them. Every wrapper is tested for the
// abilities that it passes on.
func TestAbilities(t *testing.T) {
	const driver, suite = "source/driver", "source/drivertest"
	abilities, wrappers := map[string]bool{}, map[string]bool{}
	files := parseAll(t)
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if _, ok := n.Type.(*ast.InterfaceType); ok && f.dir == driver && n.Name.Name != "Source" {
					abilities[n.Name.Name] = true
				}
			case *ast.StructType:
				for _, field := range n.Fields.List {
					if name := ofDriver(field.Type); len(field.Names) == 0 && (name == "Mapped" || name == "Wrapper") {
						wrappers[f.dir] = true
					}
				}
			}
			return true
		})
	}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if x, ok := n.(*ast.TypeAssertExpr); ok && f.dir != suite && abilities[ofDriver(x.Type)] {
				t.Errorf("%s: a type assertion does not see what wrapped sources can do: use driver.As[driver.%s]", position(x), ofDriver(x.Type))
			}
			return true
		})
	}
	for _, f := range parseTests(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok && x.Sel.Name == "Wrapped" {
				delete(wrappers, f.dir)
			}
			return true
		})
	}
	for dir := range wrappers {
		t.Errorf("%s has a wrapper of sources and does not test it: call drivertest.Wrapped", dir)
	}
	if len(abilities) < 15 {
		t.Errorf("found %d abilities: this test looks in the wrong place", len(abilities))
	}
}

// ofDriver is the name of a type of source/driver, "" for other types.
func ofDriver(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "driver" {
			return s.Sel.Name
		}
	}
	return ""
}

// leaves import nothing of the project except each other, so that any package may use them.
var leaves = []string{"internal/dtype", "internal/item", "internal/pread", "internal/proc", "internal/runfolder", "internal/units"}

func TestLeavesImportNothing(t *testing.T) {
	for _, f := range parseAll(t) {
		for _, imported := range f.imports() {
			if to := local(imported); within(f.dir, leaves...) && to != "" && !within(to, leaves...) {
				t.Errorf("%s imports %s", f.name, imported)
			}
		}
	}
}

// Only internal/proc reads the kernel's data on processes, limits and devices.
func TestOnlyProcReadsProc(t *testing.T) {
	path := regexp.MustCompile(`^/(proc|sys)(/\S*)?$`)
	for _, f := range parseAll(t) {
		if within(f.dir, "internal/proc") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && path.MatchString(text) {
					t.Errorf("%s: %s is read by package proc", position(n), text)
				}
			}
			return true
		})
	}
}

// The order of records is a pure function, and so are a plan and the memory budget of an engine: no I/O, no clock and
// no goroutines.
func TestPurePackages(t *testing.T) {
	pure := map[string][]string{
		"internal/sampler": {"cmp", "errors", "fmt", "math", "math/bits", "slices", "encoding/binary", module + "/internal/item"},
		"internal/budget":  {"fmt", "math", "strconv", "strings", module + "/internal/units"},
		"plan": {"cmp", "errors", "fmt", "math", "sort", "strconv", "strings",
			module + "/internal/budget", module + "/internal/collate", module + "/internal/dtype", module + "/internal/item", module + "/internal/units"},
	}
	for _, f := range parseAll(t) {
		allowed, ok := pure[f.dir]
		if !ok {
			continue
		}
		for _, imported := range f.imports() {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s; %s may import only %v", f.name, imported, f.dir, allowed)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: %s starts a goroutine", position(n), f.dir)
			case *ast.ChanType:
				t.Errorf("%s: %s uses a channel", position(n), f.dir)
			}
			return true
		})
	}
}

// Packages that read data do not import the pipeline, not even indirectly.
func TestDriversDoNotReachThePipeline(t *testing.T) {
	graph := map[string][]string{}
	for _, f := range parseAll(t) {
		for _, imported := range f.imports() {
			if to := local(imported); to != "" {
				graph[f.dir] = append(graph[f.dir], to)
			}
		}
	}
	for dir := range graph {
		if !within(dir, "store", "internal/store", "source", "internal/source", "pack", "sink", "internal/sink") {
			continue
		}
		seen := map[string]bool{}
		var visit func(p string, trail []string)
		visit = func(p string, trail []string) {
			if seen[p] {
				return
			}
			seen[p] = true
			trail = append(trail, p)
			if within(p, "internal/pipeline", "internal/kind") {
				t.Errorf("%s", strings.Join(trail, " -> "))
			}
			for _, next := range graph[p] {
				visit(next, trail)
			}
		}
		visit(dir, nil)
	}
}

// Stores know nothing of their contents, and decorators nothing of each other. Networked stores use one reader, which
// has retry's rules and counts.
func TestStoresStandBelow(t *testing.T) {
	reader := "internal/store/ranged"
	networked := []string{"internal/store/bucket", "internal/store/lease", "internal/store/node", "internal/store/pieces", reader}
	for _, f := range parseAll(t) {
		if !within(f.dir, "store", "internal/store") {
			continue
		}
		for _, imported := range f.imports() {
			to := local(imported)
			switch {
			case to == "" || to == "store" || to == "internal/arena" || within(to, leaves...):
			case f.dir == "internal/store/stores": // opens all of them
			case within(to, networked...) && !within(f.dir, "internal/store/retry", "internal/store/counttest", "internal/store/faulttest"):
			case f.dir == reader && (to == "internal/store/retry" || to == "internal/store/traffic"):
			default:
				t.Errorf("%s imports %s; a store or decorator may import only store, internal/arena and leaves, a store of a network also its shared parts", f.name, to)
			}
		}
	}
}

// Requests to servers go through the range reader of the stores, which checks every answer, bounds every wait and
// counts. Exceptions are doctor's throttled server, a program of its own, the servers of tests, which are asked
// before there is a store, and the exporter of metrics, which answers and sends nothing.
func TestOnlyStoresSpeakHTTP(t *testing.T) {
	for _, f := range parseAll(t) {
		if slices.Contains(f.imports(), "net/http") && !within(f.dir, "store", "internal/store", "internal/serverstest", "internal/status", "bench") {
			t.Errorf("%s imports net/http; only stores do", f.name)
		}
	}
}

// Packages whose names end with "test" serve tests. Only tests, other test packages and the
// programs of benchmarks import them.
func TestTestPackagesAreImportedByTestsOnly(t *testing.T) {
	exceptions := map[string]string{
		"internal/cli/faults.go": "internal/store/faulttest", // STOKER_TEST_FAULTS, for tests of the whole program
	}
	used := 0
	for _, f := range parseAll(t) {
		if strings.HasSuffix(f.dir, "test") || within(f.dir, "bench") {
			continue
		}
		for _, imported := range f.imports() {
			to := local(imported)
			switch {
			case to == "" || !strings.HasSuffix(to, "test"):
			case exceptions[f.name] == to:
				used++
			default:
				t.Errorf("%s imports %s, which is for tests only", f.name, to)
			}
		}
	}
	if used != len(exceptions) {
		t.Errorf("%d of %d exceptions are used: remove the others", used, len(exceptions))
	}
}

// Packages that only tests import have names that end with "test".
func TestPackagesForTestsAreCalledSo(t *testing.T) {
	imported := map[string]bool{".": true, "plan/measure": true} // which programs of users import
	files := parseAll(t)
	for _, f := range files {
		if !strings.HasSuffix(f.dir, "test") {
			for _, path := range f.imports() {
				imported[local(path)] = true
			}
		}
	}
	for _, f := range files {
		if f.ast.Name.Name != "main" && !strings.HasSuffix(f.dir, "test") && !imported[f.dir] {
			t.Errorf("%s: only tests import %s: let its name end with test", f.name, f.dir)
		}
	}
}

// Each kind of field is defined in a file of internal/kind. The pipeline knows no kind by name, so that a new one does
// not touch it.
func TestThePipelineKnowsNoKind(t *testing.T) {
	for _, f := range parseAll(t) {
		if !within(f.dir, "internal/pipeline") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Kind") && s.Sel.Name != "Kind" && s.Sel.Name != "Kinds" {
				if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "driver" {
					t.Errorf("%s: driver.%s; what is particular to a kind belongs to internal/kind", position(s), s.Sel.Name)
				}
			}
			return true
		})
	}
}

// Packages that read data read it from a store, so that it need not be local files.
func TestDataIsReadThroughStores(t *testing.T) {
	readers := []string{"source", "internal/source", "pack", "internal/survey", "internal/fetch", "internal/recordread", "internal/pipeline", "internal/npy"}
	calls := regexp.MustCompile(`^(os\.(Open|OpenFile|Create|ReadFile|WriteFile|ReadDir|Stat|Rename)|unix\.(Open|Openat|Pread|Stat|Fstat)|filepath\.(Walk|WalkDir|Glob))$`)
	for _, f := range parseAll(t) {
		// The suite for sources counts the files that are open.
		if !within(f.dir, readers...) || within(f.dir, "source/drivertest") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && calls.MatchString(pkg.Name+"."+sel.Sel.Name) {
					t.Errorf("%s: %s.%s; read it from a store.Store", position(sel), pkg.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestCgoAndUnsafeStayWhereTheyAre(t *testing.T) {
	for _, f := range parseAll(t) {
		for _, imported := range f.imports() {
			// Before main nothing can be done but in C.
			if imported == "C" && f.name == "cmd/stoker/schedule.go" {
				continue
			}
			if (imported == "C" || imported == "unsafe") && !within(f.dir, lowLevel...) {
				t.Errorf("%s imports %q; only %v may", f.name, imported, lowLevel)
			}
		}
	}
}

// Only the program ends the program; a library returns errors.
// Tests do not depend on the speed of the machine: those that read a clock use synctest.
func TestTestsDoNotCompareTimes(t *testing.T) {
	for _, f := range parseTests(t) {
		if slices.Contains(f.imports(), "testing/synctest") {
			continue
		}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Benchmark") {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				of, name := "", method.Sel.Name
				if pkg, ok := method.X.(*ast.Ident); ok {
					of = pkg.Name
				}
				faults := name == "After" && slices.Contains(f.imports(), module+"/internal/store/faulttest") // counts operations
				if of == "time" && (name == "Since" || name == "Until") || of != "time" && (name == "After" || name == "Before") && !faults {
					t.Errorf("%s: a test compares times; use testing/synctest, or wait for what has to happen", position(n))
				}
				return true
			})
		}
	}
}

// listOf returns a list of the Makefile.
func listOf(t *testing.T, name string) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(makefile)) {
		if list, ok := strings.CutPrefix(line, name+" := "); ok {
			return strings.Fields(list)
		}
	}
	t.Fatalf("the Makefile has no %s", name)
	return nil
}

// The race detector watches every package that starts goroutines.
func TestRaceDetectorWatchesGoroutines(t *testing.T) {
	unwatched := listOf(t, "NORACE")
	for _, dir := range unwatched {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Errorf("NORACE: %v", err)
		}
	}
	for _, f := range parseAll(t) {
		if !slices.Contains(unwatched, f.dir) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			_, starts := n.(*ast.GoStmt)
			if call, ok := n.(*ast.CallExpr); ok && !starts {
				method, _ := call.Fun.(*ast.SelectorExpr)
				starts = method != nil && method.Sel.Name == "Go" // of a WaitGroup or an errgroup
			}
			if starts {
				t.Errorf("%s: %s starts goroutines and is in NORACE of the Makefile", position(n), f.dir)
			}
			return true
		})
	}
}

// scripts/plain.sh finds the tests that do less under the race detector by what they ask. Such a question in a helper of
// tests would escape it, and so would a test that does less in the build with the invariants.
func TestThePlainPassHasWhatOthersLeaveOut(t *testing.T) {
	invariants := listOf(t, "INVARIANTS")
	whole, asking, names := plainPass(t, strings.Join(invariants, " "))
	for _, dir := range listOf(t, "NORACE") {
		if !whole["./"+dir] {
			t.Errorf("scripts/plain.sh leaves out %s, which is in NORACE", dir)
		}
	}
	for _, f := range append(parseAll(t), parseTests(t)...) {
		test, dir := strings.HasSuffix(f.name, "_test.go"), "./"+f.dir
		if f.dir == "." {
			dir = "."
		}
		// less checks that the plain pass has a test that does less.
		less := func(where, name string) {
			if !slices.Contains(invariants, dir) && !whole[dir] && !(asking[dir] && names[name]) {
				t.Errorf("%s: scripts/plain.sh does not find that a test does less under the race detector", where)
			}
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if !test || !strings.HasPrefix(c.Text, "//go:build") {
					continue
				}
				if strings.Contains(c.Text, "!invariants") {
					t.Errorf("%s: the pass with the invariants leaves a test out: scripts/plain.sh relies on its being whole", f.name)
				}
				if strings.Contains(c.Text, "race") {
					less(f.name, "")
				}
			}
		}
		for _, d := range f.ast.Decls {
			name := "" // of a test
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				name = fn.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				of, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, _ := of.X.(*ast.Ident)
				if pkg == nil {
					return true
				}
				asks := pkg.Name == "testing" && of.Sel.Name == "Short" || pkg.Name == "racetest"
				switch {
				case test && pkg.Name == "invariants" && of.Sel.Name == "Enabled":
					t.Errorf("%s: a test asks for the invariants: scripts/plain.sh relies on their pass being whole", position(n))
				case test && (asks || pkg.Name == "drivertest" && of.Sel.Name == "Faults"):
					less(position(n), name)
				case !test && f.name != "source/drivertest/faults.go" && asks:
					t.Errorf("%s: a helper of tests does less under the race detector: name it in scripts/plain.sh and here", position(n))
				}
				return true
			})
		}
	}
}

// plainPass runs scripts/plain.sh. It returns the packages whose tests are all run (whole), the packages with only some
// tests that are run (asking), and the names of the latter tests.
func plainPass(t *testing.T, invariants string) (whole, asking, names map[string]bool) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "scripts/plain.sh"), strings.Join(listOf(t, "NORACE"), " "), invariants).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	set := func(words []string) map[string]bool {
		all := map[string]bool{}
		for _, w := range words {
			all[w] = true
		}
		return all
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		run, ok := strings.CutPrefix(words[0], "-run=^(")
		if !ok {
			whole = set(words)
			continue
		}
		asking, names = set(words[1:]), set(strings.Split(strings.TrimSuffix(run, ")$"), "|"))
	}
	return whole, asking, names
}

func TestLibrariesDoNotExit(t *testing.T) {
	for _, f := range parseAll(t) {
		// Small programs of benchmarks are also programs.
		if within(f.dir, "cmd", "internal/cli") || f.ast.Name.Name == "main" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := call.X.(*ast.Ident)
			if !ok {
				return true
			}
			name := pkg.Name + "." + call.Sel.Name
			if name == "os.Exit" || strings.HasPrefix(name, "log.Fatal") || strings.HasPrefix(name, "log.Panic") {
				t.Errorf("%s: %s", position(n), name)
			}
			return true
		})
	}
}

// One file of each package describes it, so that there is one place to look.
func TestPackageComments(t *testing.T) {
	comments := map[string][]string{}
	for _, f := range parseAll(t) {
		if ast.IsGenerated(f.ast) {
			continue
		}
		where := comments[f.dir]
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			where = append(where, f.name)
			want := "Package " + f.ast.Name.Name + " "
			if f.ast.Name.Name == "main" {
				want = "Command "
			}
			if !strings.HasPrefix(f.ast.Doc.Text(), want) {
				t.Errorf("%s: the package comment does not begin with %q", f.name, want)
			}
		}
		comments[f.dir] = where
	}
	for dir, where := range comments {
		// Files for other platforms are another program, with a comment of their own.
		where = slices.DeleteFunc(where, func(name string) bool { return strings.HasSuffix(name, "_unsupported.go") })
		if len(where) != 1 {
			t.Errorf("package %s has %d package comments, want 1: %v", dir, len(where), where)
		}
	}
}

func TestExportedIdentifiersAreDocumented(t *testing.T) {
	for _, f := range parseAll(t) {
		if ast.IsGenerated(f.ast) {
			continue
		}
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && receiverIsExported(d) && !knownToAll(d) {
					t.Errorf("%s: %s has no comment", position(d), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					checkSpec(t, d, spec)
				}
			}
		}
	}
}

// receiverIsExported is true for functions, and for methods that can be seen in
// the documentation.
func receiverIsExported(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	receiver := d.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.IndexListExpr:
			receiver = r.X
		case *ast.Ident:
			return r.IsExported()
		default:
			return true
		}
	}
}

// knownToAll is true for methods that every reader of Go knows.
func knownToAll(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "String"}, d.Name.Name)
}

// checkSpec requires a comment on a type, and on a constant or variable or on its group.
func checkSpec(t *testing.T, group *ast.GenDecl, spec ast.Spec) {
	t.Helper()
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && group.Doc == nil {
			t.Errorf("%s: type %s has no comment", position(s), s.Name.Name)
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && s.Doc == nil && s.Comment == nil && group.Doc == nil {
				t.Errorf("%s: %s has no comment", position(s), name.Name)
			}
		}
	}
}

// The README names the functions to read first. Such lists rot, so each entry,
// `path/file.go`: `Name` or `Type.Name`, must exist.
func TestReadmeNamesExist(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(readme), "## Reading the source")
	if !ok {
		t.Fatal("README.md has no section \"Reading the source\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	names := map[string][]string{}
	for _, f := range parseAll(t) {
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				if id, ok := receiver.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			names[f.name] = append(names[f.name], name)
		}
	}
	entries := regexp.MustCompile("`([a-z0-9_/]+\\.(?:go|c|py))`: `([A-Za-z0-9_.]+)`").FindAllStringSubmatch(section, -1)
	if len(entries) < 6 {
		t.Errorf("the section names %d functions, want at least 6", len(entries))
	}
	for _, entry := range entries {
		name, function := entry[1], entry[2]
		if strings.HasSuffix(name, ".go") {
			if !slices.Contains(names[name], function) {
				t.Errorf("%s has no function %s", name, function)
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		last := function[strings.LastIndex(function, ".")+1:]
		if !regexp.MustCompile(`\b` + last + `\(`).Match(text) {
			t.Errorf("%s has no function %s", name, function)
		}
	}
}
