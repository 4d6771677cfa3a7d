// The CNI plugin of host ports: a port of the node leads to a port of a pod. It reads the same configuration as the
// plugin of that name of the CNI project, which runs the programs `iptables` or `nft`. A node has neither, so this one
// speaks to the kernel itself.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/utils"
	bv "github.com/containernetworking/plugins/pkg/utils/buildversion"
	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// conf is the configuration of this plugin.
type conf struct {
	types.NetConf
	Backend              string   `json:"backend"`
	SNAT                 *bool    `json:"snat"`
	ConditionsV4         []string `json:"conditionsV4"`
	ConditionsV6         []string `json:"conditionsV6"`
	ExternalSetMarkChain string   `json:"externalSetMarkChain"`
	RuntimeConfig        struct {
		Mappings []mapping `json:"portMappings"`
	} `json:"runtimeConfig"`
}

// mapping leads a port of the node to a port of the pod.
type mapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	// Protocol is a name in protocols, once loaded.
	Protocol string `json:"protocol"`
	HostIP   string `json:"hostIP"`
}

// protocols are numbers by name (the registry "Protocol Numbers" of IANA).
var protocols = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:   cmdAdd,
		Check: cmdCheck,
		Del:   cmdDel,
	}, version.All, bv.BuildString("portmap"))
}

func load(data []byte) (*conf, error) {
	loaded := &conf{}
	if err := json.Unmarshal(data, loaded); err != nil {
		return nil, fmt.Errorf("reading the configuration of portmap: %w", err)
	}
	if err := version.ParsePrevResult(&loaded.NetConf); err != nil {
		return nil, fmt.Errorf("reading the result of the plugin before: %w", err)
	}
	for index, one := range loaded.RuntimeConfig.Mappings {
		name := fmt.Sprintf("portMappings[%d]", index)
		if one.HostPort == 0 || one.ContainerPort == 0 {
			return nil, fmt.Errorf("%s: hostPort and containerPort are 1 to 65535", name)
		}
		protocol := strings.ToLower(one.Protocol)
		if _, known := protocols[protocol]; !known {
			return nil, fmt.Errorf("%s: protocol is %q: use tcp, udp or sctp", name, one.Protocol)
		}
		loaded.RuntimeConfig.Mappings[index].Protocol = protocol
		if one.HostIP != "" && net.ParseIP(one.HostIP) == nil {
			return nil, fmt.Errorf("%s: hostIP is %q: use an IP address", name, one.HostIP)
		}
	}
	return loaded, nil
}

// check refuses settings that this plugin does not implement.
func (c *conf) check() error {
	if c.Backend != "" && c.Backend != "nftables" {
		return fmt.Errorf("backend is %q: a node has nftables only", c.Backend)
	}
	if len(c.ConditionsV4) > 0 || len(c.ConditionsV6) > 0 {
		return errors.New("conditionsV4 and conditionsV6 need the program nft, which a node does not have: remove them")
	}
	if c.ExternalSetMarkChain != "" {
		return errors.New("externalSetMarkChain needs iptables, which a node does not have: remove it")
	}
	return nil
}

// hidesSource says whether a pod that calls its own host port, and a caller of 127.0.0.1, get another source address.
func (c *conf) hidesSource() bool {
	return c.SNAT == nil || *c.SNAT
}

// addresses are the pod's: the first one of each family on the interface of the preceding plugin.
func (c *conf) addresses(ifName string) ([]net.IP, error) {
	if c.PrevResult == nil {
		return nil, errors.New("portmap has no pod: put it behind the plugin that connects the pod")
	}
	result, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, fmt.Errorf("reading the result of the plugin before: %w", err)
	}
	found := map[bool]net.IP{}
	var all []net.IP
	for _, one := range result.IPs {
		if at := one.Interface; at != nil && *at >= 0 && *at < len(result.Interfaces) {
			link := result.Interfaces[*at]
			if link.Name != ifName || link.Sandbox == "" {
				continue
			}
		}
		address := one.Address.IP
		isIPv4 := address.To4() != nil
		if found[isIPv4] == nil {
			found[isIPv4] = address
			all = append(all, address)
		}
	}
	return all, nil
}

func cmdAdd(args *skel.CmdArgs) error {
	loaded, err := load(args.StdinData)
	if err != nil {
		return err
	}
	if err := loaded.check(); err != nil {
		return err
	}
	addresses, err := loaded.addresses(args.IfName)
	if err != nil {
		return err
	}
	mappings := loaded.RuntimeConfig.Mappings
	if len(mappings) == 0 {
		return types.PrintResult(loaded.PrevResult, loaded.CNIVersion)
	}
	// A container that is added again has one set of rules.
	if err := removeRules(args.ContainerID); err != nil {
		return err
	}
	for _, address := range addresses {
		if err := addRules(args.ContainerID, address, mappings, loaded.hidesSource()); err != nil {
			return err
		}
		forget(address, mappings)
		if loaded.hidesSource() && address.To4() != nil {
			if err := routeLoopback(address); err != nil {
				return err
			}
		}
	}
	return types.PrintResult(loaded.PrevResult, loaded.CNIVersion)
}

func cmdCheck(args *skel.CmdArgs) error {
	loaded, err := load(args.StdinData)
	if err != nil {
		return err
	}
	addresses, err := loaded.addresses(args.IfName)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if err := checkRules(args.ContainerID, address, loaded.RuntimeConfig.Mappings); err != nil {
			return err
		}
	}
	return nil
}

func cmdDel(args *skel.CmdArgs) error {
	// The configuration may have changed since the container was added: the rules bear its ID.
	return removeRules(args.ContainerID)
}

// forget removes connections of UDP that the kernel tracks: packets of a client that called before the rules existed
// would go on to the node. The rules stand without it.
func forget(pod net.IP, mappings []mapping) {
	family := netlink.InetFamily(unix.AF_INET6)
	if pod.To4() != nil {
		family = unix.AF_INET
	}
	for _, one := range mappings {
		if one.Protocol != "udp" {
			continue
		}
		err := utils.DeleteConntrackEntriesForDstPort(one.HostPort, unix.IPPROTO_UDP, family)
		if err != nil {
			log.Printf("connections to UDP port %d of the node are not forgotten: %v", one.HostPort, err)
		}
	}
}

// routeLoopback lets packets from 127.0.0.1 leave through the interface towards the pod (kernel: ip-sysctl,
// route_localnet).
func routeLoopback(pod net.IP) error {
	routes, err := netlink.RouteGet(pod)
	if err != nil {
		return fmt.Errorf("finding the way to the pod %s: %w", pod, err)
	}
	for _, route := range routes {
		link, err := netlink.LinkByIndex(route.LinkIndex)
		if err != nil {
			return fmt.Errorf("finding the interface towards the pod %s: %w", pod, err)
		}
		name := "net/ipv4/conf/" + link.Attrs().Name + "/route_localnet"
		if _, err := sysctl.Sysctl(name, "1"); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}
