package module

import (
	"bytes"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/manifest"
)

// parseTemplate parses Rego of a template; nil after it has added an error. Locations are
// those in the template's file.
func (l *loader) parseTemplate(t *manifest.Text, v1 bool) (m *ast.Module) {
	var found findings
	defer func() {
		for _, f := range found.list {
			if f.File == "" || f.Line == 0 {
				f.File, f.Line, f.Col = t.File, t.Line, t.Col
			}
			l.findings.add(f)
		}
	}()
	defer recoverPanic(t.File, &found, func() { m = nil })
	if len(strings.TrimSpace(t.Value)) == 0 {
		found.fileError("parse", "", "the Rego is empty")
		return nil
	}
	version := ast.RegoV0
	if v1 {
		version = ast.RegoV1
	}
	caps := limits.TemplateCapabilities()
	_, _, errs := ast.NewParser().WithFilename(t.File).WithReader(bytes.NewReader([]byte(t.Value))).WithCapabilities(caps).
		WithRegoVersion(version).WithMaxRecursionDepth(8 * maxDepth).Parse()
	if len(errs) > 0 {
		for _, e := range errs {
			place(t, e.Location)
		}
		found.opaErrors("parse", t.File, errs)
		return nil
	}
	m, err := ast.ParseModuleWithOpts(t.File, t.Value, ast.ParserOptions{Capabilities: caps, RegoVersion: version})
	if err != nil {
		if list, ok := err.(ast.Errors); ok { //nolint:errorlint // the parser returns it as it is
			for _, e := range list {
				place(t, e.Location)
			}
		}
		found.opaErrors("parse", t.File, err)
		return nil
	}
	if m == nil {
		found.fileError("parse", "", "the Rego is empty")
		return nil
	}
	relocate(m, t)
	checkReservedNames(m, &found)
	if len(m.Rules) > maxRules {
		found.fileError("too-many", "", "the template has %d rules; at most %d are allowed", len(m.Rules), maxRules)
	}
	for _, r := range m.Rules {
		if err := checkShape(r); err != nil {
			found.errorAt("too-deep", r.Location, "%v", err)
		}
	}
	if len(found.list) > 0 {
		return nil
	}
	return m
}

func place(t *manifest.Text, loc *ast.Location) {
	if loc != nil {
		loc.File = t.File
		loc.Row, loc.Col = t.Place(loc.Row, loc.Col)
	}
}

// relocate changes the locations of a module, each once: nodes share them.
func relocate(m *ast.Module, t *manifest.Text) {
	seen := map[*ast.Location]bool{}
	move := func(loc *ast.Location) {
		if loc != nil && !seen[loc] {
			seen[loc] = true
			place(t, loc)
		}
	}
	visit := ast.NewGenericVisitor(func(x any) bool {
		if n, ok := x.(ast.Node); ok {
			move(n.Loc())
		}
		if t, ok := x.(*ast.Term); ok {
			move(t.Location)
		}
		return false
	})
	visit.Walk(m)
	for _, c := range m.Comments {
		move(c.Location)
	}
}

// builtinGroup is the API group of a kind that every cluster has: what names kinds of any
// group is about these at least, whatever else serves a kind of that name.
func builtinGroup(kind string) (group string, known bool) {
	switch kind {
	case "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod",
		"ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount":
		return "", true
	case "ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet":
		return "apps", true
	case "HorizontalPodAutoscaler":
		return "autoscaling", true
	case "CronJob", "Job":
		return "batch", true
	case "Ingress", "IngressClass", "NetworkPolicy":
		return "networking.k8s.io", true
	case "PodDisruptionBudget":
		return "policy", true
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		return "rbac.authorization.k8s.io", true
	case "CSIDriver", "CSINode", "StorageClass", "VolumeAttachment":
		return "storage.k8s.io", true
	case "CustomResourceDefinition":
		return "apiextensions.k8s.io", true
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return "admissionregistration.k8s.io", true
	}
	return "", false
}
