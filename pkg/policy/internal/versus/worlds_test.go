package versus

import (
	"fmt"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

func newASTs() map[string]ast.Value { return map[string]ast.Value{} }

func varyUsers(i int, o *object) {
	if i%3 != 0 {
		child(o.pod(), "securityContext")["runAsNonRoot"] = true
		o.containers(func(c map[string]any) {
			context := child(c, "securityContext")
			delete(context, "runAsUser")
			delete(context, "runAsNonRoot")
		})
		delete(child(o.pod(), "securityContext"), "runAsUser")
	}
}

func varyResources(i int, o *object) {
	if i%3 != 0 {
		o.containers(func(c map[string]any) {
			c["resources"] = map[string]any{
				"limits":   map[string]any{"memory": "256Mi"},
				"requests": map[string]any{"cpu": "100m", "memory": "128Mi"},
			}
		})
	}
}

func varyLabels(i int, o *object) {
	if i%3 != 0 {
		child(o.meta(), "labels")["app.kubernetes.io/name"] = "app-" + fmt.Sprint(i%7)
	}
}

func varySuspend(i int, o *object) { o.spec()["suspend"] = i%3 == 0 }

func varyTLS(i int, o *object) {
	if i%3 == 0 {
		return
	}
	var hosts []any
	rules, _ := o.spec()["rules"].([]any)
	for _, r := range rules {
		if fields, ok := r.(map[string]any); ok {
			if fields["host"] == nil {
				fields["host"] = "app.example.org"
			}
			hosts = append(hosts, fields["host"])
		}
	}
	o.spec()["tls"] = []any{map[string]any{"hosts": hosts, "secretName": "tls"}}
}

func varyBalancers(i int, o *object) {
	if i%4 == 0 {
		o.spec()["type"] = "LoadBalancer"
	}
	if i%8 == 0 {
		child(o.meta(), "annotations")["service.beta.kubernetes.io/aws-load-balancer-internal"] = "true"
	}
	if i%12 == 0 {
		o.spec()["loadBalancerSourceRanges"] = []any{"10.1.0.0/16", "203.0.113.0/24"}[:1+i%24/12]
	}
}

func varyNodePorts(i int, o *object) {
	if i%4 == 0 {
		o.spec()["type"] = "NodePort"
		o.spec()["ports"] = []any{map[string]any{"name": "http", "port": 80, "nodePort": 30000 + i%1000}, map[string]any{"name": "https", "port": 443}}[i%8/4:]
	}
}

func varyPhase(i int, o *object) {
	status := child(o.fields, "status")
	if i%4 == 0 {
		status["phase"] = "Pending"
		status["conditions"] = []any{map[string]any{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}}
	}
	if i%8 == 0 {
		o.meta()["creationTimestamp"] = now.Add(-time.Minute).Format(time.RFC3339)
	}
}

func varyJobs(i int, o *object) {
	status := child(o.fields, "status")
	if i%4 == 0 {
		status["startTime"] = now.Add(-48 * time.Hour).Format(time.RFC3339)
		delete(status, "conditions")
	}
	if i%8 == 0 {
		status["startTime"] = now.Add(-time.Hour).Format(time.RFC3339)
	}
}

func varyNodes(i int, o *object) {
	if i%4 != 0 {
		return
	}
	conditions, _ := child(o.fields, "status")["conditions"].([]any)
	for _, x := range conditions {
		if c, ok := x.(map[string]any); ok && c["type"] == "Ready" {
			c["status"] = "Unknown"
			if i%8 == 0 {
				c["lastTransitionTime"] = now.Add(-time.Minute).Format(time.RFC3339)
			}
		}
	}
}

func varyMarks(i int, o *object) {
	if i%3 != 0 {
		child(o.meta(), "labels")["federator.dev/multi-region"] = "true"
	}
}

func varyOwners(i int, o *object) {
	if i%5 != 0 {
		child(o.meta(), "labels")["owner"] = fmt.Sprintf("team-%d", i%7)
	}
}

// next is the member some places after that of an object.
func next(o *object, n int) string {
	for i, m := range memberNames {
		if m == o.ref.Member {
			return memberNames[(i+n)%len(memberNames)]
		}
	}
	return memberNames[n]
}

// imageWorld has namesakes in three members, some of which run other versions.
func imageWorld(w *world) {
	for i, o := range w.objects {
		w.has(o, o.ref.Member)
		w.has(o, next(o, 1))
		other := o.copied(w.tb)
		if i%3 == 0 {
			other.containers(func(c map[string]any) {
				if image, ok := c["image"].(string); ok {
					c["image"] = strings.Replace(image, ":", ":9", 1)
				}
			})
		}
		w.has(other, next(o, 2))
	}
}

// regionWorld has namesakes in three members, or in one.
func regionWorld(w *world) {
	for i, o := range w.objects {
		w.has(o, o.ref.Member)
		if i%3 != 1 {
			w.has(o, next(o, 1))
			w.has(o, next(o, 2))
		}
	}
}

// ownerWorld has namesakes in three members, some with other owners.
func ownerWorld(w *world) {
	for i, o := range w.objects {
		w.has(o, o.ref.Member)
		w.has(o, next(o, 1))
		other := o.copied(w.tb)
		if i%4 == 1 {
			child(other.meta(), "labels")["owner"] = "team-other"
		}
		w.has(other, next(o, 2))
	}
}

// entry is an entry of a view.
func entry(o *object, member string, v any) map[string]any {
	return map[string]any{"ref": map[string]any{"kind": o.ref.Kind, "member": member, "namespace": o.ref.Namespace, "name": o.ref.Name}, "value": v}
}

func namespaceWorld(w *world) {
	used := w.view("federator.tenancy.unused_namespace", "used")
	for i, o := range w.objects {
		if o.ref.Kind == "Namespace" && i%4 != 0 {
			used[o.ref.Member+" "+o.ref.Name] = []any{entry(o, o.ref.Member, true)}
		}
		if i%8 == 0 {
			o.meta()["creationTimestamp"] = now.Add(-time.Hour).Format(time.RFC3339)
		}
	}
}

func claimWorld(w *world) {
	used := w.view("federator.hygiene.orphaned_pvc", "used")
	made := w.view("federator.hygiene.orphaned_pvc", "made")
	for i, o := range w.objects {
		if o.ref.Kind != "PersistentVolumeClaim" {
			continue
		}
		child(o.fields, "status")["phase"] = "Bound"
		claim := o.ref.Member + "/" + o.ref.Namespace + "/" + o.ref.Name
		switch i % 4 {
		case 0:
		case 1:
			made[ordinal.ReplaceAllString(claim, "")] = []any{entry(o, o.ref.Member, true)}
		default:
			used[claim] = []any{entry(o, o.ref.Member, "Pod")}
		}
	}
}

func hostWorld(w *world) {
	hosts := w.view("federator.network.unique_host", "hosts")
	for i, o := range w.objects {
		rules, _ := o.spec()["rules"].([]any)
		for at, r := range rules {
			fields, ok := r.(map[string]any)
			if !ok {
				continue
			}
			host := fmt.Sprintf("app-%d-%d.example.org", i, at)
			fields["host"] = host
			claims := []any{entry(o, o.ref.Member, true)}
			if i%3 == 0 {
				claims = append(claims, entry(o, next(o, 1), true))
			}
			hosts[host] = claims
		}
	}
}
