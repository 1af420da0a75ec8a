package query

import (
	"encoding/json"
	"strings"
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

const queryManifests = `apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {federator.dev/member: fleet/eu-1}}
spec: {containers: [{name: web, image: "nginx:1.27"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {federator.dev/member: fleet/us-1}}
spec: {containers: [{name: web, image: "nginx:1.28"}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s, annotations: {federator.dev/member: fleet/us-1}}
stringData: {password: hunter2}
`

func TestQuery_OverManifests(t *testing.T) {
	file := clitest.WriteFile(t, "fleet.yaml", queryManifests)
	out, err := command(t, "query", "-f", file, `image := data.fleet.objects.Pod[member][_][name].spec.containers[_].image`)
	if err != nil {
		t.Fatal(err)
	}
	want := "image        member       name\nnginx:1.27   fleet/eu-1   web\nnginx:1.28   fleet/us-1   web\n"
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	out, err = command(t, "query", "-f", file, "-o", "json", `data.fleet.objects.Secret["fleet/us-1"]`)
	if err != nil {
		t.Fatal(err)
	}
	var answer policy.Answer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Rows) != 1 {
		t.Errorf("%s: %v", out, err)
	}
	if strings.Contains(out, "hunter2") {
		t.Errorf("a Secret's value: %s", out)
	}
	if out, err = command(t, "query", "-f", file, `data.fleet.objects.Pod.nobody`); err != nil || out != "undefined\n" {
		t.Errorf("nothing: %q, %v", out, err)
	}
	if out, err = command(t, "query", "-f", file, `data.fleet.names`); err != nil || out != "[\n  \"fleet/eu-1\",\n  \"fleet/us-1\"\n]\n" {
		t.Errorf("values: %q, %v", out, err)
	}
}

func TestQuery_IsTheSameOverASnapshot(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 1)
	dir := t.TempDir()
	const query = `count(data.fleet.objects.Namespace["context/` + "MEMBER" + `"][""])`
	live := []string{"--kubeconfig", kubeconfig, "--contexts", members[0].Name()}
	if _, err := command(t, append([]string{"snapshot", "-o", dir}, live...)...); err != nil {
		t.Fatal(err)
	}
	names, err := command(t, "query", "--snapshot", dir, `m := data.fleet.names[0]`)
	if err != nil {
		t.Fatal(err)
	}
	member := strings.TrimPrefix(strings.Split(names, "\n")[1], "context/")
	q := strings.Replace(query, "MEMBER", member, 1)
	saved, err := command(t, "query", "--snapshot", dir, q)
	if err != nil {
		t.Fatal(err)
	}
	now, err := command(t, append([]string{"query", q}, live...)...)
	if err != nil || now != saved || saved == "0\n" || !strings.HasSuffix(saved, "\n") {
		t.Errorf("saved %q, now %q, %v", saved, now, err)
	}
}

func TestQuery_ExitsWith2OnInvalidInput(t *testing.T) {
	file := clitest.WriteFile(t, "fleet.yaml", queryManifests)
	for _, args := range [][]string{
		{"-f", file, `data`},
		{"-f", file, `x :=`},
		{"-f", "absent.yaml", `data.fleet.names`},
		{"-f", file, "-o", "xml", `data.fleet.names`},
		{"-f", file, "--timeout", "0s", `data.fleet.names`},
		{"-f", file, "--max-rows", "1", `data.fleet.objects.Pod[m]`},
		{`data.fleet.names`},
	} {
		_, err := command(t, append([]string{"query"}, args...)...)
		if err == nil || exit.Code(err) != exit.CodeUsage {
			t.Errorf("%v: %v exits with %d", args, err, exit.Code(err))
		}
	}
}
