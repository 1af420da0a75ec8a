package versus

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy/internal/value"
)

func (f *fleet) group(member, label string) string {
	if label == "" {
		return ""
	}
	group, _ := text(f.tree.Field("members").Field(member).Field("labels").Field(label))
	return group
}

// peer reports whether the subject is compared with a member.
func (s *subject) peer(member, label string) bool {
	if member == s.member || label == "" {
		return member != s.member
	}
	own, _ := text(s.labels.Field(label))
	return s.fleet.group(member, label) == own
}

// namesakes are the objects of the subject's name, by member.
func (s *subject) namesakes(kind string) []value.Value {
	at := s.fleet.tree.Field("by_name").Field(kind).Field(s.namespace).Field(s.name)
	if at.Kind() != value.Object {
		return nil
	}
	return at.Pairs()
}

// running is a container and its image.
type running struct{ name, image string }

func images(list []running, pod value.Value) []running {
	for _, field := range [...]string{"initContainers", "containers"} {
		for _, c := range elems(pod.Field(field)) {
			name, okName := text(c.Field("name"))
			image, ok := text(c.Field("image"))
			if okName && ok {
				list = append(list, running{name, image})
			}
		}
	}
	return list
}

// differ reports whether two images are different versions of one.
func (i image) differs(other image) bool {
	if i.hasDigest && other.hasDigest {
		return i.digest != other.digest
	}
	return i.tag != "" && other.tag != "" && i.tag != other.tag
}

func (i image) version() string { return cmp.Or(i.tag, i.digest) }

// elsewhere is an image of another member.
type elsewhere struct{ image, member string }

func imageSkew(params value.Value) rule {
	group := params.Field("group").Str()
	return func(s *subject, out *findings) {
		siblings := s.namesakes(s.kind)
		if len(siblings) < 4 { // its own alone
			return
		}
		var room [8]running
		s.skew(images(room[:0], podSpec(s)), siblings, group, out)
	}
}

// skew compares the images of the subject's containers with those of its namesakes.
func (s *subject) skew(list []running, siblings []value.Value, group string, out *findings) {
	var of [8]running
	for _, own := range list {
		var differing []elsewhere
		parsed, done := image{}, false
		for i := 0; i < len(siblings); i += 2 {
			for _, other := range images(of[:0], siblings[i+1].Field("spec").Field("template").Field("spec")) {
				if other.name != own.name || other.image == own.image {
					continue
				}
				if !done {
					parsed, done = parseImage(own.image), true
				}
				if parsed.differs(parseImage(other.image)) && s.peer(siblings[i].Str(), group) {
					differing = append(differing, elsewhere{other.image, siblings[i].Str()})
				}
			}
		}
		if differing != nil {
			reportSkew(out, own, differing)
		}
	}
}

func reportSkew(out *findings, own running, differing []elsewhere) {
	slices.SortFunc(differing, func(a, b elsewhere) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.member, b.member))
	})
	var versions, members []string
	list := details(nil).text("container", own.name).text("image", own.image).key("others")
	list = append(list, '[')
	for i, d := range differing {
		versions, members = append(versions, parseImage(d.image).version()), append(members, d.member)
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, details(nil).text("image", d.image).text("member", d.member).end()...)
	}
	msg := "container " + own.name + " runs " + parseImage(own.image).version() + " here and " + few(sorted(versions)) + " in " + few(sorted(members))
	out.add(msg, append(list, "]}"...))
}

func minRegions(params value.Value) rule {
	mark, label, required := params.Field("mark").Str(), params.Field("region").Str(), params.Field("regions").Int()
	return func(s *subject, out *findings) {
		if _, marked := text(s.object.Field("metadata").Field("labels").Field(mark)); mark == "" || marked {
			s.regions(label, required, out)
		}
	}
}

// regions counts the regions in which the subject has namesakes.
func (s *subject) regions(label string, required int, out *findings) {
	var room [8]string
	regions := room[:0]
	siblings := s.namesakes("Deployment.apps")
	for i := 0; i < len(siblings); i += 2 {
		if replicas := siblings[i+1].Field("spec").Field("replicas"); replicas.IsNumber() && replicas.Int() == 0 {
			continue
		}
		if region := s.fleet.group(siblings[i].Str(), label); region != "" && !slices.Contains(regions, region) {
			regions = append(regions, region)
		}
	}
	if len(regions) >= required {
		return
	}
	slices.Sort(regions)
	number, named := "none", ""
	if len(regions) > 0 {
		number, named = strconv.Itoa(len(regions)), ": "+few(regions)
	}
	out.add("runs in "+number+" of "+strconv.Itoa(required)+" regions"+named, details(nil).texts("regions", regions).int("required", required).end())
}

// stated says which owners members name.
func stated(owners map[string][]string) string {
	var list []string
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		list = append(list, owner+" in "+few(owners[owner]))
	}
	return strings.Join(list, "; ")
}

func ownersDetails(own string, others map[string][]string) []byte {
	list := details(nil)
	for _, owner := range slices.Sorted(maps.Keys(others)) {
		list = list.texts(owner, others[owner])
	}
	if list == nil {
		list = details("{")
	}
	return append(details(nil).key("others"), list.end()...).text("owner", own).end()
}

// ownerRules are the parameters of namespace_owner.
type ownerRules struct {
	label, group string
	exempt       []string
}

func newOwnerRules(params value.Value) *ownerRules {
	return &ownerRules{params.Field("label").Str(), params.Field("group").Str(), strs(params.Field("exempt"))}
}

func (r *ownerRules) exempts(s *subject) bool {
	return slices.ContainsFunc(r.exempt, func(p string) bool { return glob(p, s.name, '.') })
}

func (r *ownerRules) owner(object value.Value) string {
	owner, _ := text(object.Field("metadata").Field("labels").Field(r.label))
	return owner
}

// compare compares the owner with those of namesakes.
func (r *ownerRules) compare(s *subject, own string, out *findings) {
	var others map[string][]string
	siblings := s.namesakes("Namespace")
	for i := 0; i < len(siblings); i += 2 {
		if owner := r.owner(siblings[i+1]); owner != "" && owner != own && s.peer(siblings[i].Str(), r.group) {
			if others == nil {
				others = map[string][]string{}
			}
			others[owner] = append(others[owner], siblings[i].Str())
		}
	}
	switch {
	case own == "" && others == nil:
		out.add("label "+r.label+" is missing", ownersDetails(own, others))
	case own == "":
		out.add("label "+r.label+" is missing; it is "+stated(others), ownersDetails(own, others))
	case others != nil:
		out.add("owner is "+own+" here and "+stated(others), ownersDetails(own, others))
	}
}

func namespaceOwner(params value.Value) rule {
	r := newOwnerRules(params)
	return func(s *subject, out *findings) {
		if !r.exempts(s) {
			r.compare(s, r.owner(s.object), out)
		}
	}
}

// unusedRules are the parameters of unused_namespace.
type unusedRules struct {
	annotation, msg string
	age             time.Duration
}

func newUnusedRules(params value.Value) *unusedRules {
	days := params.Field("days").Int()
	return &unusedRules{
		params.Field("annotation").Str(), "nothing runs in it, and it is more than " + strconv.Itoa(days) + " days old",
		time.Duration(days) * 24 * time.Hour,
	}
}

func (*unusedRules) concern(s *subject) bool {
	return s.kind == "Namespace" && !strings.HasPrefix(s.name, "kube-") && s.name != "default"
}

func (r *unusedRules) check(s *subject, created string, out *findings) {
	if s.fleet.older(created, r.age) && !s.fleet.view("federator.tenancy.unused_namespace", "used").Field(s.member+" "+s.name).Defined() {
		out.add(r.msg, nil)
	}
}

func unusedNamespace(params value.Value) rule {
	r := newUnusedRules(params)
	return func(s *subject, out *findings) {
		meta := s.object.Field("metadata")
		if r.concern(s) && !holds(meta.Field("annotations").Field(r.annotation)) {
			created, _ := text(meta.Field("creationTimestamp"))
			r.check(s, created, out)
		}
	}
}

var ordinal = regexp.MustCompile(`-[0-9]+$`)

func orphanedPVC(params value.Value) rule {
	labels := strs(params.Field("labels"))
	return func(s *subject, out *findings) {
		status := s.object.Field("status")
		if s.kind != "PersistentVolumeClaim" || !is(status.Field("phase"), "Bound") {
			return
		}
		has := s.object.Field("metadata").Field("labels")
		if slices.ContainsFunc(labels, func(key string) bool { return holds(has.Field(key)) }) {
			return
		}
		if s.claimed() {
			return
		}
		size, sized := text(status.Field("capacity").Field("storage"))
		volume, _ := text(s.object.Field("spec").Field("volumeName"))
		orphaned(out, size, sized, volume)
	}
}

// claimed reports whether something uses the claim that the subject is.
func (s *subject) claimed() bool {
	claim := s.member + "/" + s.namespace + "/" + s.name
	if s.fleet.view("federator.hygiene.orphaned_pvc", "used").Field(claim).Defined() {
		return true
	}
	at := ordinal.FindStringIndex(claim)
	return at != nil && s.fleet.view("federator.hygiene.orphaned_pvc", "made").Field(claim[:at[0]]).Defined()
}

func orphaned(out *findings, size string, sized bool, volume string) {
	msg := "nothing uses the claim"
	if sized {
		msg += " of " + size
	}
	out.add(msg, details(nil).text("volume", volume).end())
}

func hostsOf(s *subject, hosts []string) []string {
	spec := s.object.Field("spec")
	if s.kind == "HTTPRoute.gateway.networking.k8s.io" {
		for _, h := range elems(spec.Field("hostnames")) {
			if host, _ := text(h); host != "" && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		return hosts
	}
	for _, r := range elems(spec.Field("rules")) {
		if host, _ := text(r.Field("host")); host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// hostClaims are the parameters of unique_host.
type hostClaims struct{ shared, labels []string }

func newHostClaims(params value.Value) *hostClaims {
	return &hostClaims{strs(params.Field("sharedHosts")), strs(params.Field("sharingLabels"))}
}

// sharing reports whether a member may serve the same hosts.
func (r *hostClaims) sharing(s *subject, member string) bool {
	of := s.fleet.tree.Field("members").Field(member).Field("labels")
	return slices.ContainsFunc(r.labels, func(label string) bool {
		own := s.labels.Field(label)
		return own.Defined() && value.Equal(own, of.Field(label))
	})
}

func (r *hostClaims) check(s *subject, hosts []string, out *findings) {
	for _, host := range hosts {
		if slices.ContainsFunc(r.shared, func(p string) bool { return glob(p, host, '.') }) {
			continue
		}
		var refs []value.Value
		var places []string
		for _, claim := range elems(s.fleet.view("federator.network.unique_host", "hosts").Field(host)) {
			ref := claim.Field("ref")
			member, namespace := ref.Field("member").Str(), ref.Field("namespace").Str()
			switch {
			case member == s.member && namespace != s.namespace:
				places = append(places, "namespace "+namespace)
			case member != s.member && !r.sharing(s, member):
				places = append(places, member)
			default:
				continue
			}
			refs = append(refs, ref)
		}
		if refs != nil {
			text, _ := value.ArrayOf(refs).JSON()
			out.add("host "+host+" is also served from "+few(sorted(places)), append(details(nil).text("host", host).key("others"), text...).end())
		}
	}
}

func uniqueHost(params value.Value) rule {
	r := newHostClaims(params)
	return func(s *subject, out *findings) {
		var room [8]string
		r.check(s, hostsOf(s, room[:0]), out)
	}
}
