package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/kube"
)

// newest is a policy that Deployments of the second version violate.
const newest = `# METADATA
# title: No second version
# custom: {severity: high, kinds: [Deployment.apps]}
package versions

violation contains {"msg": sprintf("container %s runs %s", [c.name, c.image])} if {
	some c in input.object.spec.template.spec.containers
	endswith(c.image, ":2")
}
`

// TestHistory_TellsOfARollout rolls a Deployment out on a member with controllers, and compares what federator history says with the
// member's audit log: who wants to know what was before it broke finds the cause and what came of it, in order.
func TestHistory_TellsOfARollout(t *testing.T) {
	r := newRig(t, kube.Options{Members: 1, Audit: true, Controllers: true})
	r.do(os.WriteFile(filepath.Join(r.dir, "policies", "versions.rego"), []byte(newest), 0o600))
	r.start()
	r.synced()
	member := r.fleet.Members[0]
	ctx := t.Context()
	_, err := member.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	r.do(err)
	deployments := member.Client().AppsV1().Deployments("shop")
	labels := map[string]string{"app": "web"}
	_, err = deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}},
		},
	}, metav1.CreateOptions{})
	r.do(err)
	r.rolledOut()
	image := func(image string) {
		_, err := deployments.Patch(ctx, "web", "application/strategic-merge-patch+json", fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, image), metav1.PatchOptions{})
		r.do(err)
		r.rolledOut()
	}
	image("web:2")
	image("web:3")

	var told []history.Record
	r.do(kube.Until(ctx, patience, func() error {
		told = r.told("deployment", "web", "-n", "shop")
		return r.asAudited(told, "deployments", "web")
	}))
	var lines []string
	for i := range told {
		lines = append(lines, line(&told[i]))
	}
	t.Logf("the history of the rollout:\n%s", strings.Join(lines, "\n"))
	inOrder(t, lines, // controllers take other steps between them each time
		`^Created .*spec.template.spec.containers\[web\].image=>"web:1"`,
		`^Changed .*status.readyReplicas=\d*>2`,
		`^Changed spec.template.spec.containers\[web\].image="web:1">"web:2"`,
		`^Opened container web runs web:2`,
		`^Changed .*status.updatedReplicas=\d*>2`,
		`^Changed spec.template.spec.containers\[web\].image="web:2">"web:3"`,
		`^Closed container web runs web:2`,
		`^Changed .*status.updatedReplicas=\d*>2`,
	)
	r.cause(told)
	pods := r.told("pods", "-n", "shop", "--transition", "Created,Deleted")
	count := map[string]int{}
	for _, p := range pods {
		count[p.Transition]++
	}
	if count[history.Created] < 6 || count[history.Deleted] < 4 {
		t.Errorf("of 6 Pods, 4 of them replaced, %v are recorded", count)
	}
	out, err := r.command("history", "deployment", "web", "-n", "shop", "--path", "spec.template")
	r.do(err)
	if !strings.Contains(out, `spec.template.spec.containers[web].image=web:1 -> web:2;`) || strings.Contains(out, "readyReplicas") {
		t.Errorf("federator history --path prints\n%s", out)
	}
}

// cause checks that the violation follows from the change that has caused it.
func (r *rig) cause(told []history.Record) {
	r.t.Helper()
	find := func(is func(*history.Record) bool) *history.Record {
		for i := range told {
			if is(&told[i]) {
				return &told[i]
			}
		}
		r.t.Fatal("it is not recorded")
		return nil
	}
	change := find(func(x *history.Record) bool {
		return slices.ContainsFunc(x.Changes, func(c history.Change) bool { return string(c.After) == `"web:2"` })
	})
	opened := find(func(x *history.Record) bool { return x.Transition == history.Opened })
	if opened.UID != change.UID || opened.Revision < change.Revision || opened.Policy != "versions" || opened.Time.Before(change.Time) {
		r.t.Errorf("the violation %+v does not follow from the change %+v", opened, change)
	}
}

// asAudited is an error unless each version of an object that is told of was audited, and the writes of its user and of a controller are told.
// That no write is missing, the restarts show, whose writes all change a recorded field.
func (r *rig) asAudited(told []history.Record, resource, name string) error {
	events, err := r.fleet.Members[0].Audit()
	if err != nil {
		return err
	}
	versions := map[string]string{} // who has written them
	for _, e := range events {
		if e.ObjectRef.Resource != resource || e.ObjectRef.Name != name && e.Verb != "create" || e.ResponseStatus.Code >= 300 {
			continue
		}
		var o struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := json.Unmarshal(e.ResponseObject, &o); err != nil {
			return err
		}
		if o.Metadata.Name == name {
			versions[o.Metadata.ResourceVersion] = e.User.Username
		}
	}
	users := map[string]bool{}
	for i := range told {
		x := &told[i]
		if x.Type != history.Object {
			continue
		}
		user, ok := versions[x.ResourceVersion]
		if !ok {
			return fmt.Errorf("version %s is told of, and was not audited", x.ResourceVersion)
		}
		users[user] = true
	}
	if len(users) < 2 {
		return fmt.Errorf("of the writes of a user and a controller, those of %v are told", users)
	}
	return nil
}

// rolledOut waits until the Deployment is.
func (r *rig) rolledOut() {
	r.t.Helper()
	r.do(kube.Until(r.t.Context(), 2*patience, func() error {
		d, err := r.fleet.Members[0].Client().AppsV1().Deployments("shop").Get(r.t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := &d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != 2 || s.ReadyReplicas != 2 || s.Replicas != 2 {
			return fmt.Errorf("generation %d, status %+v", d.Generation, s)
		}
		return nil
	}))
}

// command runs a command of federator against its query API.
func (r *rig) command(args ...string) (string, error) {
	file := filepath.Join(r.dir, "fleet.kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["fleet"] = &clientcmdapi.Cluster{Server: "https://" + r.query + "/fleet", CertificateAuthorityData: r.ca}
	config.AuthInfos["reader"] = &clientcmdapi.AuthInfo{ClientCertificateData: r.cred.Cert, ClientKeyData: r.cred.Key}
	config.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "reader"}
	config.CurrentContext = "fleet"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, append(args, "--kubeconfig", file)...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		var stderr []byte
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			stderr = e.Stderr
		}
		return "", fmt.Errorf("federator %s: %w: %s", strings.Join(args, " "), err, stderr)
	}
	return string(out), nil
}

// told returns what federator history prints.
func (r *rig) told(args ...string) []history.Record {
	r.t.Helper()
	out, err := r.command(append([]string{"history", "-o", "json"}, args...)...)
	r.do(err)
	var list policyquery.HistoryList
	r.do(json.Unmarshal([]byte(out), &list))
	return list.Items
}

// line is a record without what differs from run to run.
func line(x *history.Record) string {
	parts := []string{x.Transition}
	if x.Violation != "" {
		parts = append(parts, x.Violation)
	}
	for _, c := range x.Changes {
		parts = append(parts, fmt.Sprintf("%s=%s>%s", c.Path, c.Before, c.After))
	}
	return strings.Join(parts, " ")
}

// inOrder checks that there is a line for each pattern, in their order.
func inOrder(t *testing.T, lines []string, want ...string) {
	t.Helper()
	at := 0
	for _, w := range want {
		i := slices.IndexFunc(lines[at:], regexp.MustCompile(w).MatchString)
		if i < 0 {
			t.Errorf("%q is not told after what comes before it", w)
			return
		}
		at += i + 1
	}
}
