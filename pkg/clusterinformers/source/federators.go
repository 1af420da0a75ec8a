package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/upstream"
)

// FederatorOptions is a source of members that are those of another federator, which are read by its query API,
// as far as that grants them, and never written to. A member fleet/eu-1 of a federator eu is called eu/fleet.eu-1: grants for
// namespace eu of the hub are for all of them. While it is not known which members there are, a member
// eu/federator stands for them, of which nothing is known.
//
// Name, Installation and Logger are required, and either Server, CAFile and TokenFile, or Kubeconfig.
type FederatorOptions struct {
	Name         string // of the federator here: a DNS label
	Installation string // ID of this federator, by which loops are found
	Server       string // of its query API, such as https://federator.eu.example:8443
	CAFile       string // certificates (PEM) that it is verified by
	TokenFile    string // a token that it accepts
	Kubeconfig   string // instead: a file whose current context has all of that
	Network      connection.Network
	Logger       *slog.Logger

	Interval time.Duration // between looks at which members there are; 0: 5 s
}

// placeholderName is what stands for members that are not known: their names have dots.
const placeholderName = "federator"

const (
	defaultFederatorInterval = 5 * time.Second
	federatorTimeout         = 30 * time.Second // of one look
	maxFederatorMembers      = 20_000
	// membersKnownFor is how long the members are known that there were at the last look that succeeded.
	membersKnownFor = time.Minute
)

// federatorSource looks at which members there are again and again. One goroutine, that of Run, has its state.
type federatorSource struct {
	FederatorOptions

	client  *memberclient.Client
	http    *http.Client
	cluster *clientcmdapi.Cluster // of the server's root
	user    *clientcmdapi.AuthInfo
	files   []string
	stamps  []fileStamp

	members []clusterinformers.Spec // of the last look that succeeded
	partial *connection.Refusal     // why these are not all; nil: they are
	others  bool                    // the federator does not know yet which there are
	seen    time.Time               // that look; zero: there was none
	warned  map[string]bool

	knownFor time.Duration
}

// NewFederator returns the source, or what is wrong with the options.
func NewFederator(o FederatorOptions) (clusterinformers.Source, error) {
	switch {
	case o.Logger == nil:
		return nil, errors.New("federator: Logger is required")
	case !ValidFederatorName(o.Name):
		return nil, fmt.Errorf("federator: Name %q is not a DNS label that is free", o.Name)
	case !federation.ValidID(o.Installation):
		return nil, errors.New("federator: Installation is required")
	case o.Kubeconfig == "" && (!ValidProxyURL(o.Server) || o.CAFile == "" || o.TokenFile == ""), o.Kubeconfig != "" && o.Server+o.CAFile+o.TokenFile != "":
		return nil, errors.New("federator: either Server, CAFile and TokenFile are required, or Kubeconfig")
	}
	o.Interval = cmp.Or(o.Interval, defaultFederatorInterval)
	return &federatorSource{FederatorOptions: o, warned: map[string]bool{}, knownFor: membersKnownFor}, nil
}

// ValidFederatorName reports whether a federator whose members are read may be called so: its name is the first
// half of theirs.
func ValidFederatorName(name string) bool {
	return len(validation.IsDNS1123Label(name)) == 0 && !slices.Contains(reservedNamespaces, name)
}

// Run implements Source.
func (f *federatorSource) Run(ctx context.Context, set func(clusterinformers.View)) error {
	defer f.hangUp()
	tick := time.NewTicker(f.Interval)
	defer tick.Stop()
	var last *clusterinformers.View
	for {
		view := f.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if last == nil || !reflect.DeepEqual(*last, view) {
			last = &view
			set(view)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *federatorSource) hangUp() {
	if f.http != nil {
		f.client.Close()
		f.http.CloseIdleConnections()
	}
}

// look asks which members there are, and returns the view.
func (f *federatorSource) look(ctx context.Context) clusterinformers.View {
	refused := f.load()
	if refused == nil {
		ctx, cancel := context.WithTimeout(ctx, federatorTimeout)
		defer cancel()
		refused = f.ask(ctx)
	}
	now := time.Now()
	if refused == nil || refused.Reason == connection.Loop {
		f.seen = now
	}
	view := clusterinformers.View{Members: slices.Clone(f.members), Partial: f.seen.IsZero() || f.others}
	switch {
	case refused == nil:
		refused = f.partial
	case refused.Reason == connection.Loop:
	case now.Sub(f.seen) < f.knownFor:
		refused = nil
	default:
		refused = connection.Refuse(connection.UnknownMembers, "it is not known which members the federator has: %s: %s", refused.Reason, refused.Message)
	}
	if refused == nil {
		clear(f.warned)
		return view
	}
	if !f.warned[refused.Error()] {
		clear(f.warned)
		f.warned[refused.Error()] = true
		f.Logger.Warn("the members of a federator are not all known", "federator", f.Name, "reason", refused.Reason, "detail", refused.Message)
	}
	// Nothing of a loop is missing; else readers of the fleet must see that something is.
	view.Members = append(view.Members, clusterinformers.Spec{
		Name: f.Name + "/" + placeholderName, Trusted: true, ReadOnly: true, Refused: refused, Uninitialized: refused.Reason == connection.Loop,
	})
	return view
}

// load reads the files where they have changed.
func (f *federatorSource) load() *connection.Refusal {
	if f.client != nil && slices.Equal(f.stamps, stampsOf(f.files)) {
		return nil
	}
	var files []string
	stamps := stampsOf(f.files) // of before what is read
	cluster, user, refused := f.credentials(&files)
	if refused != nil {
		if f.client != nil {
			return nil // a file that is being written: what was read before is used
		}
		return refused
	}
	kubeconfig, refused := writeKubeconfig(cluster, user)
	if refused != nil {
		return refused
	}
	config, refused := memberclient.ParseKubeconfig(kubeconfig, memberclient.Allowed{})
	if refused != nil {
		return refused
	}
	client, err := memberclient.NewHTTPClient(config, memberclient.TransportOptions{Network: f.Network, Trusted: true, Reader: f.Installation})
	if err != nil {
		return connection.Refuse(connection.InvalidKubeconfig, "%v", err)
	}
	if !slices.Equal(files, f.files) {
		stamps = nil // they are read once more
	}
	f.hangUp()
	f.cluster, f.user, f.files, f.stamps = cluster, user, files, stamps
	f.http, f.client = client, memberclient.New(config, client)
	return nil
}

// credentials reads how the federator is reached.
func (f *federatorSource) credentials(files *[]string) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *connection.Refusal) {
	cluster, user := &clientcmdapi.Cluster{Server: f.Server, CertificateAuthority: f.CAFile}, &clientcmdapi.AuthInfo{TokenFile: f.TokenFile}
	if f.Kubeconfig != "" {
		*files = append(*files, f.Kubeconfig)
		data, err := readFile(f.Kubeconfig)
		if err != nil {
			return nil, nil, connection.Refuse(connection.InvalidKubeconfig, "%v", err)
		}
		config, err := clientcmd.Load(data)
		if err != nil || config.Contexts[config.CurrentContext] == nil {
			return nil, nil, connection.Refuse(connection.InvalidKubeconfig, "%s has no current context", f.Kubeconfig)
		}
		for _, c := range config.Clusters {
			c.LocationOfOrigin = f.Kubeconfig
		}
		for _, u := range config.AuthInfos {
			u.LocationOfOrigin = f.Kubeconfig
		}
		if err := clientcmd.ResolveLocalPaths(config); err != nil {
			return nil, nil, connection.Refuse(connection.InvalidKubeconfig, "%s: a file that it names cannot be found", f.Kubeconfig)
		}
		current := config.Contexts[config.CurrentContext]
		if cluster, user = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]; cluster == nil || user == nil {
			return nil, nil, connection.Refuse(connection.InvalidKubeconfig, "the current context of %s is incomplete", f.Kubeconfig)
		}
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, nil, connection.Refuse(connection.InvalidKubeconfig, "the server is not a URL such as https://host:8443")
	}
	cluster.Server = server.Scheme + "://" + server.Host // its kubeconfigs may be of /fleet or a member
	token := []byte(user.Token)
	for _, file := range []struct {
		path *string
		data *[]byte
	}{
		{&cluster.CertificateAuthority, &cluster.CertificateAuthorityData},
		{&user.ClientCertificate, &user.ClientCertificateData},
		{&user.ClientKey, &user.ClientKeyData},
		{&user.TokenFile, &token},
	} {
		if err := inlineFile(file.path, file.data, files); err != nil {
			return nil, nil, connection.Refuse(connection.FilePath, "%v", err)
		}
	}
	user.Token = string(bytes.TrimSpace(token))
	switch {
	case !x509.NewCertPool().AppendCertsFromPEM(cluster.CertificateAuthorityData):
		return nil, nil, connection.Refuse(connection.NoCA, "there is no certificate that the server is verified by")
	case user.Token == "" && len(user.ClientCertificateData) == 0:
		return nil, nil, connection.Refuse(connection.InvalidKubeconfig, "there is neither a token nor a client certificate")
	}
	return cluster, user, nil
}

// ask asks which members there are, and takes them.
func (f *federatorSource) ask(ctx context.Context) *connection.Refusal {
	all, installation, partial, err := f.pages(ctx)
	switch {
	case errors.Is(err, upstream.ErrMalformed):
		return connection.Refuse(connection.ServerError, "%v", err)
	case apierrors.IsForbidden(err):
		return connection.Refuse(connection.Unauthorized, "%v", err)
	case err != nil:
		return connection.Refuse(memberclient.ReasonFor(err), "%v", err)
	case installation == f.Installation:
		f.members, f.partial = nil, nil
		return connection.Refuse(connection.Loop, "the federator is this one")
	}
	f.members, f.partial, f.others = nil, nil, partial
	unfit, deep, example := 0, 0, ""
	for _, m := range all {
		name, ok := upstream.MemberName(f.Name, m.Name)
		via := slices.Concat([]string{installation}, m.Via)
		switch {
		case slices.Contains(m.Via, f.Installation): // it is one of ours, or leads to one
			continue
		case len(via) > federation.MaxDepth:
			deep++
		case !ok:
			unfit++
			example = m.Name
		default:
			f.members = append(f.members, f.spec(name, &m, via))
		}
	}
	switch {
	case partial:
		f.partial = connection.Refuse(connection.UnknownMembers, "the federator does not know yet which members it has")
	case unfit > 0:
		f.partial = connection.Refuse(connection.UnknownMembers, "%d members of the federator have names that cannot be used here, such as %q", unfit, message.Clip(example))
	case deep > 0:
		f.partial = connection.Refuse(connection.UnknownMembers, "%d members of the federator are behind more than %d federators", deep, federation.MaxDepth)
	}
	return nil
}

// pages returns all members, the ID of the installation that has them, and whether there may be others.
func (f *federatorSource) pages(ctx context.Context) (all []upstream.Member, installation string, partial bool, err error) {
	params := url.Values{"facts": {"true"}, "limit": {strconv.Itoa(upstream.PageSize)}}
	for {
		body, err := f.client.Query(ctx, upstream.MembersPath, params)
		if err != nil {
			return nil, "", false, err
		}
		page, err := upstream.Parse(body, upstream.PageSize)
		switch {
		case err != nil:
			return nil, "", false, err
		case installation != "" && page.Installation != installation:
			return nil, "", false, fmt.Errorf("%w: two installations have answered", upstream.ErrMalformed)
		case len(all) > 0 && len(page.Members) > 0 && all[len(all)-1].Name >= page.Members[0].Name:
			return nil, "", false, fmt.Errorf("%w: its members are not in order", upstream.ErrMalformed)
		}
		partial = partial || page.Partial
		installation, all = page.Installation, append(all, page.Members...)
		switch {
		case page.Continue == "":
			return all, installation, partial, nil
		case len(page.Members) == 0:
			return nil, "", false, fmt.Errorf("%w: a page has no members", upstream.ErrMalformed)
		case len(all) > maxFederatorMembers:
			return nil, "", false, fmt.Errorf("%w: it has more than %d members", upstream.ErrMalformed, maxFederatorMembers)
		}
		params.Set("continue", page.Continue)
	}
}

// spec describes a member.
func (f *federatorSource) spec(name string, m *upstream.Member, via []string) clusterinformers.Spec {
	s := clusterinformers.Spec{
		Name: name, UID: m.UID, Labels: m.Labels, Cluster: m.Cluster, Trusted: true, ReadOnly: true,
		Credentials: "the configuration of federator " + f.Name,
		Upstream:    &clusterinformers.Upstream{Member: m.Name, Via: via, Scopes: m.Scopes},
	}
	cluster := f.cluster.DeepCopy()
	cluster.Server += "/members/" + m.Name
	s.Kubeconfig, s.Refused = writeKubeconfig(cluster, f.user)
	return s
}

// Reserving is a source without the members that an object describes and that are called as those of federators may
// be, by the names of these.
func Reserving(s clusterinformers.Source, federators []string, log *slog.Logger) clusterinformers.Source {
	if len(federators) == 0 {
		return s
	}
	return &reserving{s, federators, log}
}

type reserving struct {
	clusterinformers.Source

	namespaces []string
	log        *slog.Logger
}

// Run implements Source.
func (r *reserving) Run(ctx context.Context, set func(clusterinformers.View)) error {
	warned := map[string]bool{}
	return r.Source.Run(ctx, func(view clusterinformers.View) {
		view.Members = slices.DeleteFunc(slices.Clone(view.Members), func(s clusterinformers.Spec) bool {
			namespace, _, _ := strings.Cut(s.Name, "/")
			is := s.Object != nil && slices.Contains(r.namespaces, namespace)
			if is && !warned[s.Name] {
				warned[s.Name] = true
				r.log.Warn("the namespace is reserved for the members of a federator: the object describes no member", "member", s.Name)
			}
			return is
		})
		set(view)
	})
}
