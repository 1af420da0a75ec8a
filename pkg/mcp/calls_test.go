package mcp_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// hostile are arguments that try to change what is asked, or whom.
var hostile = []string{
	"../../../api/v1/secrets", "https://evil.example.com/", "//evil.example.com/x", "@evil.example.com", "shop/../../default", "%2e%2e%2fshop", "shop%00", "a/one?watch=true",
	"a/one#x", "x\r\nAuthorization: Bearer stolen", "shop&labelSelector=", "*", "{.}", "$..*", "..", ".", "/", "shop,default", "' or 1=1 --", strings.Repeat("a", 5000), "\u202egnp", "\x00",
	"federator.dev/member=a.one", "zz00001zz", "in (a,b)", "!x", "=",
}

// value is one that is there, one that is hostile, or none.
func value(rng *rand.Rand, of ...string) string {
	if rng.IntN(10) == 0 {
		return pick(rng, hostile...)
	}
	return pick(rng, of...)
}

// randomCall is a call of a tool with random arguments.
func randomCall(rng *rand.Rand, w *world) (tool string, args map[string]any) {
	o, other := pick(rng, w.objects...), pick(rng, w.objects...)
	resource := resourceOf(o.ref.Kind).Resource.GroupResource().String()
	args = map[string]any{}
	maybe := func(name string, v any) {
		if rng.IntN(3) == 0 {
			args[name] = v
		}
	}
	switch tool = pick(rng, "query", "query", "rego", "count", "count", "related", "violations", "explain", "actions", "history", "history", "members"); tool {
	case "query":
		args["resource"] = value(rng, resource)
		maybe("name", value(rng, o.ref.Name, other.ref.Name))
		maybe("namespace", value(rng, o.ref.Namespace, "shop"))
		maybe("member", value(rng, o.ref.Member, "none/none"))
		maybe("labelSelector", value(rng, "app", "app="+o.labels["app"], "member.federator.dev/env", "member.federator.dev/env!="+w.members[0].Labels[0].Value))
		maybe("fieldSelector", value(rng, "metadata.name="+o.ref.Name, "status.phase!=x", "data.text!=y"))
		maybe("fields", []string{value(rng, ".metadata.name", "@", ".spec", ".data"), value(rng, ".metadata", ".metadata.annotations")})
		maybe("limit", rng.IntN(6))
		maybe("continue", value(rng, "1.x", "1."+o.ref.Name))
	case "rego":
		args["rego"] = randomRego(rng, w)
		maybe("offset", rng.IntN(5)-1)
		return "query", args
	case "count":
		args["resource"] = []string{value(rng, resource)}
		if rng.IntN(3) == 0 {
			return tool, args
		}
		maybe("groupBy", []string{pick(rng, "label:app", "memberLabel:env", "field:metadata.name", "field:data.text")})
		maybe("groupBy", []string{value(rng, "member", "namespace", "label:app", "memberLabel:env", "field:metadata.name", "field:status.phase", "field:data.text")})
		maybe("member", value(rng, o.ref.Member))
		maybe("namespace", value(rng, o.ref.Namespace, "shop"))
		maybe("labelSelector", value(rng, "app", "app!="+o.labels["app"]))
		maybe("fieldSelector", value(rng, "metadata.name!="+o.ref.Name))
		maybe("offset", rng.IntN(4))
	case "related":
		args["member"], args["resource"], args["name"] = value(rng, o.ref.Member), value(rng, resource), value(rng, o.ref.Name)
		if o.ref.Namespace != "" {
			args["namespace"] = value(rng, o.ref.Namespace)
		}
		maybe("depth", rng.IntN(12))
		maybe("direction", value(rng, "up", "down", "both"))
		maybe("kinds", []string{value(rng, "pods", "configmaps", "nodes")})
	case "violations":
		maybe("policy", []string{value(rng, "images", "names", "reads", "replicas", "tier")})
		maybe("member", []string{value(rng, o.ref.Member)})
		maybe("kind", []string{value(rng, string(o.ref.Kind))})
		maybe("search", value(rng, o.ref.Name, "zz"))
		maybe("groupBy", []string{value(rng, "policy", "member", "namespace", "kind")})
		maybe("limit", rng.IntN(9))
		maybe("continue", value(rng, "1.x"))
	case "explain":
		policies := map[aggregate.Kind][]string{"Pod": {"images", "reads"}, "Deployment.apps": {"replicas"}, "Service": {"names"}}
		for policies[o.ref.Kind] == nil {
			o = pick(rng, w.objects...)
		}
		args["policy"] = value(rng, append(policies[o.ref.Kind], policies[o.ref.Kind][0], "tier")...)
		if args["policy"] == "names" {
			args["key"] = value(rng, o.ref.Name)
			return tool, args
		}
		args["member"] = value(rng, o.ref.Member)
		if args["policy"] != "tier" {
			args["kind"], args["name"], args["namespace"] = value(rng, string(o.ref.Kind)), value(rng, o.ref.Name), value(rng, o.ref.Namespace)
		}
		maybe("section", value(rng, "input", "reads", "lines", "violations", "actions"))
	case "actions":
		maybe("action", value(rng, pick(rng, w.actions...).Name, "../actions"))
		maybe("member", []string{value(rng, o.ref.Member)})
		maybe("namespace", []string{value(rng, o.ref.Namespace, "shop")})
		maybe("limit", rng.IntN(9))
		maybe("since", value(rng, "24h", "x"))
	case "history":
		if rng.IntN(4) == 0 {
			args["type"], args["limit"] = []string{"Gap"}, 100
			return tool, args
		}
		of := pick(rng, w.past...).of
		maybe("member", []string{value(rng, of.ref.Member, o.ref.Member), value(rng, other.ref.Member)})
		maybe("kind", []string{value(rng, string(of.ref.Kind), string(o.ref.Kind))})
		maybe("namespace", []string{value(rng, of.ref.Namespace, "shop")})
		maybe("name", []string{value(rng, of.ref.Name, o.ref.Name)})
		maybe("uid", []string{value(rng, of.uid, o.uid)})
		maybe("policy", []string{value(rng, "images", "names", "reads", "replicas", "tier")})
		maybe("source", []string{value(rng, "fleet-policies")})
		maybe("type", []string{value(rng, "Object", "Verdict", "Action", "Policy", "Member", "Scope", "Gap"), value(rng, "Object", "Verdict")})
		maybe("transition", []string{value(rng, "Changed", "Deleted", "Opened", "Closed", "CommitTaken"), value(rng, "Failed", "Created")})
		maybe("path", []string{value(rng, "spec", "status.phase", "metadata.labels", "spec.containers["+o.ref.Name+"].image")})
		maybe("since", value(rng, "1h", "2026-01-02T03:04:05Z"))
		maybe("until", value(rng, "0s", "1h"))
		maybe("order", value(rng, "newest", "oldest"))
		maybe("limit", rng.IntN(101))
		maybe("continue", value(rng, "1.x", "1.eyJ0IjoxLCJsIjoiQSIsInAiOjEsIm8iOiJuZXdlc3QifQ", "0.eyJ0Ijo5OTk5OTk5OTk5OTk5LCJsIjoiQSIsInAiOjEsIm8iOiJuZXdlc3QifQ"))
	case "members":
		maybe("labelSelector", value(rng, "member.federator.dev/env", "federator.dev/member=a.one"))
		maybe("namePrefix", value(rng, "a/", "b"))
		maybe("resource", []string{value(rng, resource)})
		maybe("state", []string{value(rng, "Synced", "Stale")})
		maybe("notFresh", rng.IntN(2) == 0)
		maybe("limit", rng.IntN(4))
	}
	return tool, args
}

func randomRego(rng *rand.Rand, w *world) string {
	o := pick(rng, w.objects...)
	return pick(rng,
		"data.fleet.names", "data.fleet.members", "some m; data.fleet.members[m].labels", fmt.Sprintf("data.fleet.objects[%q]", o.ref.Kind), fmt.Sprintf("count(data.fleet.objects[%q][%q])", o.ref.Kind, o.ref.Member),
		fmt.Sprintf("data.fleet.objects[%q][%q][%q][%q]", o.ref.Kind, o.ref.Member, o.ref.Namespace, o.ref.Name), fmt.Sprintf("data.fleet.by_name[%q][%q][%q]", o.ref.Kind, o.ref.Namespace, o.ref.Name),
		"some m, n, x; data.fleet.objects.Pod[m][n][x].spec", "data.fleet.views.names.names", "data.fleet.scopes", "data", "data.fleet", "http.send({})", "1 +", pick(rng, hostile...),
		"some m, n, x; c := data.fleet.objects.ConfigMap[m][n][x].data.text",
	)
}
