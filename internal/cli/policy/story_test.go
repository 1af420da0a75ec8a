package policy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/kube"
)

// TestStories runs the stories of testdata/stories, of the federator command and of two
// real control planes, contexts one and two of the file kubeconfig.
func TestStories(t *testing.T) {
	members, kubeconfig := clitest.RealFleet(t, "one", "two")
	byName := map[string]*kube.ControlPlane{"one": members[0], "two": members[1]}
	var s cliStory // one story at a time: they share the members
	testscript.Run(t, testscript.Params{
		Dir: "testdata/stories", RequireUniqueNames: true, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				return fmt.Errorf("%T is no test", env.T())
			}
			s = cliStory{tb: tb}
			text, err := os.ReadFile(kubeconfig)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "kubeconfig"), text, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// federator ARG... runs the command.
			"federator": s.federator,
			// exits CODE says how the last one ended.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(s.code); len(args) != 1 || got != args[0] {
					ts.Fatalf("it exits with %s", got)
				}
			},
			// sarif N holds what the last one printed to the standard's schema, and says that
			// it has N results.
			"sarif": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(len(clitest.SARIF(s.tb, s.out).Runs[0].Results)); len(args) != 1 || got != args[0] {
					ts.Fatalf("%s results", got)
				}
			},
			// apply MEMBER FILE applies manifests.
			"apply": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(byName[args[0]].Apply(s.tb.Context(), []byte(ts.ReadFile(args[1]))))
			},
			// crash MEMBER kills its API server.
			"crash": func(_ *testscript.TestScript, _ bool, args []string) { byName[args[0]].APIServer.Kill() },
		},
	})
}

// cliStory is a story of the command under way.
type cliStory struct {
	tb   testing.TB
	out  string // of the last command
	code int    // that it exited with
}

func (s *cliStory) federator(ts *testscript.TestScript, neg bool, args []string) {
	var out, errOut bytes.Buffer
	err := execute(s.tb.Context(), &out, &errOut, args...)
	s.out, s.code = out.String(), clitest.ExitCode(err)
	fmt.Fprint(ts.Stdout(), s.out)
	fmt.Fprint(ts.Stderr(), errOut.String())
	if (err != nil) != neg {
		ts.Fatalf("it exits with %d: %v\n%s", s.code, err, &errOut)
	}
}
