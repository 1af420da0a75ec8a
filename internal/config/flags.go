package config

import (
	"slices"
	"time"

	"github.com/spf13/pflag"

	"federator.dev/federator/pkg/clusterinformers"
)

// Flags are the flags of all commands that connect to members.
type Flags struct {
	config        string
	contexts      []string
	kubeconfig    string
	noExec        bool
	hubKubeconfig string
	namespaces    []string
	kinds         []string
	giveUpAfter   time.Duration
	parallelSyncs int
	logLevel      string
	logFormat     string
}

func (f *Flags) Register(fs *pflag.FlagSet) {
	fs.StringVarP(&f.config, "config", "c", "", "configuration `file` (YAML); flags override it")
	fs.StringSliceVar(&f.contexts, "contexts", nil, "connect to these kubeconfig `contexts`, '*' for all; no hub is needed")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with the contexts (default KUBECONFIG, else ~/.kube/config)")
	fs.BoolVar(&f.noExec, "no-exec", false, "refuse contexts that log in by exec plugins, instead of running them")
	fs.StringVar(&f.hubKubeconfig, "hub-kubeconfig", "", "`file` with the credentials of the hub (default in-cluster)")
	fs.StringSliceVar(&f.namespaces, "namespaces", nil, "`namespaces` of the hub to find Clusters in (default all)")
	fs.StringSliceVar(&f.kinds, "kinds", nil, "keep only these `kinds`, such as Pod,Deployment.apps (default all except Event and Lease)")
	fs.DurationVar(&f.giveUpAfter, "give-up-after", 0, "how long to wait for a member that has not synced (default 2m0s)")
	fs.IntVar(&f.parallelSyncs, "parallel-syncs", 0, "concurrent initial lists over all members (default 32)")
	fs.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error (default info)")
	fs.StringVar(&f.logFormat, "log-format", "", "text or json (default text)")
}

// Load reads the file if there is one, applies the flags and validates the result.
// override, unless nil, can change more before validation.
func (f *Flags) Load(fs *pflag.FlagSet, override func(*Config)) (Config, error) {
	cfg := Default()
	var doc *document
	if f.config != "" {
		var err error
		if doc, err = readConfig(f.config, &cfg); err != nil {
			return cfg, err
		}
	}
	if fs.Changed("contexts") || fs.Changed("kubeconfig") || fs.Changed("no-exec") && cfg.Sources.Contexts != nil {
		if cfg.Sources.Contexts == nil {
			cfg.Sources.Contexts = &Contexts{}
		}
		Override(fs, "contexts", &cfg.Sources.Contexts.Names, f.contexts)
		Override(fs, "kubeconfig", &cfg.Sources.Contexts.Path, f.kubeconfig)
		Override(fs, "no-exec", &cfg.Sources.Contexts.NoExec, f.noExec)
	}
	if fs.Changed("namespaces") || fs.Changed("hub-kubeconfig") && !cfg.HasHub() {
		if cfg.Sources.ClusterAPI == nil {
			cfg.Sources.ClusterAPI = &ClusterAPI{}
		}
		Override(fs, "namespaces", &cfg.Sources.ClusterAPI.Namespaces, f.namespaces)
	}
	Override(fs, "hub-kubeconfig", &cfg.Sources.Kubeconfig, f.hubKubeconfig)
	if fs.Changed("kinds") {
		cfg.Kinds = make([]clusterinformers.KindRule, 0, len(f.kinds))
		for _, k := range slices.Compact(slices.Sorted(slices.Values(f.kinds))) {
			cfg.Kinds = append(cfg.Kinds, clusterinformers.KindRule{Kind: k})
		}
	}
	Override(fs, "give-up-after", &cfg.GiveUpAfter, f.giveUpAfter)
	Override(fs, "parallel-syncs", &cfg.ParallelSyncs, f.parallelSyncs)
	Override(fs, "log-level", &cfg.Log.Level, f.logLevel)
	Override(fs, "log-format", &cfg.Log.Format, f.logFormat)
	if override != nil {
		override(&cfg)
	}
	return cfg, cfg.validate(doc)
}

// Override gives a setting the value of a flag, if the flag was set.
func Override[T any](fs *pflag.FlagSet, flag string, at *T, value T) {
	if fs.Changed(flag) {
		*at = value
	}
}
