package versus

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/value"
)

// contest is a shipped policy beside its rules by hand.
type contest struct {
	policy string
	hand   func(params value.Value) rule
	bytes  func(params value.Value) byteRule
	files  []string               // of the corpus
	vary   func(i int, o *object) // so that some objects are clean and others are not; may be nil
	fleet  func(w *world)         // what else there is; nil: members alone
}

var podKinds = []string{"core_Pod", "apps_Deployment", "apps_StatefulSet", "apps_DaemonSet", "batch_Job", "batch_CronJob"}

var contests = []contest{
	{"security.privileged", privileged, privilegedBytes, podKinds, nil, nil},
	{"security.run_as_non_root", runAsNonRoot, runAsNonRootBytes, podKinds, varyUsers, nil},
	{"security.host_namespaces", hostNamespaces, hostNamespacesBytes, podKinds, nil, nil},
	{"security.image_registry", imageRegistry, imageRegistryBytes, podKinds, nil, nil},
	{"hygiene.requests_and_limits", requestsAndLimits, requestsAndLimitsBytes, podKinds, varyResources, nil},
	{"hygiene.probes", probes, probesBytes, podKinds[1:4], nil, nil},
	{"hygiene.required_labels", requiredLabels, requiredLabelsBytes, append([]string{"core_Service"}, podKinds[1:4]...), varyLabels, nil},
	{"hygiene.suspended_cronjob", suspendedCronJob, suspendedCronJobBytes, podKinds[5:], varySuspend, nil},
	{"exposure.ingress_tls", ingressTLS, ingressTLSBytes, []string{"networking.k8s.io_Ingress"}, varyTLS, nil},
	{"exposure.load_balancer", loadBalancer, loadBalancerBytes, []string{"core_Service"}, varyBalancers, nil},
	{"exposure.node_port", nodePort, nodePortBytes, []string{"core_Service"}, varyNodePorts, nil},
	{"rbac.cluster_admin_bindings", clusterAdminBindings, clusterAdminBindingsBytes, []string{"rbac.authorization.k8s.io_ClusterRoleBinding", "rbac.authorization.k8s.io_RoleBinding"}, nil, nil},
	{"rbac.wildcards", wildcards, wildcardsBytes, []string{"rbac.authorization.k8s.io_ClusterRole", "rbac.authorization.k8s.io_Role"}, nil, nil},
	{"workloads.pending_pod", pendingPod, pendingPodBytes, podKinds[:1], varyPhase, nil},
	{"workloads.unfinished_job", unfinishedJob, unfinishedJobBytes, podKinds[4:5], varyJobs, nil},
	{"availability.node_not_ready", nodeNotReady, nodeNotReadyBytes, []string{"core_Node"}, varyNodes, nil},
	{"workloads.image_skew", imageSkew, imageSkewBytes, podKinds[1:4], nil, imageWorld},
	{"availability.min_regions", minRegions, minRegionsBytes, podKinds[1:2], varyMarks, regionWorld},
	{"tenancy.namespace_owner", namespaceOwner, namespaceOwnerBytes, []string{"core_Namespace"}, varyOwners, ownerWorld},
	{"tenancy.unused_namespace", unusedNamespace, unusedNamespaceBytes, []string{"core_Namespace"}, nil, namespaceWorld},
	{"hygiene.orphaned_pvc", orphanedPVC, orphanedPVCBytes, []string{"core_PersistentVolumeClaim"}, nil, claimWorld},
	{"network.unique_host", uniqueHost, uniqueHostBytes, []string{"networking.k8s.io_Ingress"}, nil, hostWorld},
}

// now is the time of the fleet, after the corpus was made.
var now = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)

// world is a fleet that is being made.
type world struct {
	tb      testing.TB
	objects []*object
	byName  map[string]any // kind, namespace, name, member
	views   map[string]any // package, name
}

// has adds a namesake in a member.
func (w *world) has(o *object, member string) {
	at := child(child(child(w.byName, string(o.ref.Kind)), o.ref.Namespace), o.ref.Name)
	at[member] = o.fields
}

func (w *world) view(pkg, name string) map[string]any { return child(child(w.views, pkg), name) }

// setup is a contest with its objects.
type setup struct {
	*contest
	policy  *policy
	objects []*object
	fleet   *fleet
	given   []map[string]any // parameters, the defaults first
}

func (c *contest) setup(tb testing.TB, set *module.Set) *setup {
	tb.Helper()
	s := &setup{contest: c, policy: newPolicy(tb, set, c.policy)}
	fixtures, parameters := fromFixtures(tb, c.policy)
	for _, p := range append([]map[string]any{{}}, parameters...) {
		if resolved, problems := s.policy.pkg.Parameters.Resolve(p); len(problems) == 0 {
			s.given = append(s.given, resolved)
		}
	}
	varied := slices.Concat(fixtures, fixtures, fixtures, fromCorpus(tb, c.files...))
	for i, o := range varied {
		o = o.copied(tb)
		if !slices.ContainsFunc(s.policy.pkg.Kinds, func(k module.KindRef) bool { return k.Kind == o.ref.Kind }) {
			continue
		}
		if i >= len(fixtures) {
			o.ref.Name = fmt.Sprintf("%s-%d", o.ref.Name, i)
			o.meta()["name"] = o.ref.Name
			if c.vary != nil {
				c.vary(i, o)
			}
		}
		s.objects = append(s.objects, o)
	}
	w := &world{tb, s.objects, map[string]any{}, map[string]any{}}
	if c.fleet != nil {
		c.fleet(w)
	}
	for _, o := range s.objects {
		o.seal(tb)
	}
	s.fleet = w.seal(s.policy.pkg)
	return s
}

// seal decodes the fleet, of its objects what the package reads.
func (w *world) seal(pkg *module.Package) *fleet {
	whole := &object{fields: map[string]any{"by_name": w.byName, "members": members(), "names": memberNames, "views": w.views}}
	delete(whole.fields, "metadata")
	whole.seal(w.tb)
	m := mask.Union(mask.Path(mask.Whole(), "views"), mask.Path(mask.Whole(), "members"), mask.Path(mask.Whole(), "names"))
	for kind, read := range pkg.Reads.Fleet {
		m = mask.Union(m, mask.Path(read, "by_name", string(kind.Kind), "*", "*", "*"))
	}
	tree, err := value.Decode(nil, whole.body, m)
	if err != nil {
		w.tb.Fatal(err)
	}
	return &fleet{tree: tree, now: now.Unix(), asts: newASTs()}
}

// cases are all objects, as they are evaluated with parameters.
func (s *setup) cases(tb testing.TB, parameters map[string]any) []*testCase {
	tb.Helper()
	params := decoded(tb, parameters)
	list := make([]*testCase, len(s.objects))
	for i, o := range s.objects {
		list[i] = newCase(tb, s.policy, o, params, s.fleet)
	}
	return list
}

// sample is a hundred objects, ten of which violate the policy, from all over the list.
func (s *setup) sample(tb testing.TB) []*testCase {
	tb.Helper()
	var kinds [2][]*testCase
	for _, c := range s.cases(tb, s.given[0]) {
		var out findings
		if err := s.policy.run(c.input, c.fleet, &out); err != nil {
			tb.Fatal(err)
		}
		kinds[min(len(out.list), 1)] = append(kinds[min(len(out.list), 1)], c)
	}
	if len(kinds[0]) == 0 || len(kinds[1]) == 0 {
		tb.Fatalf("%s: %d objects are clean and %d are not", s.contest.policy, len(kinds[0]), len(kinds[1]))
	}
	var list []*testCase
	for i := range 100 {
		from := kinds[0]
		at := i * len(from) / 90
		if i%10 == 9 {
			from = kinds[1]
			at = i / 10 * max(len(from)/10, 1)
		}
		list = append(list, from[at%len(from)])
	}
	return list
}
