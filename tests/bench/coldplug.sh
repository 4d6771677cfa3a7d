# Run as root in the Debian machine by the bench (coldplug.rs): times how long systemd-udevd and udevd
# take, from their start with nothing known, until every device that is there is settled. $1: rounds.
# Each result is one line on the console: `coldplug: WHO MICROSECONDS RECORDS`.
exec </dev/null >/dev/ttyS0 2>&1
ROUNDS=$1
NODE=/run/bench/node

now() { printf -v NOW '%s' "${EPOCHREALTIME/[^0-9]/}"; }

# Nothing that one of them knew is there for the other.
forget() { rm -rf /run/udev; mkdir -p /run/udev; }

told() {
    set -- "$1" "$2" /run/udev/data/*
    echo "coldplug: $1 $2 $(($# - 2))"
}

systemd_udevd() {
    forget
    now; local start=$NOW
    /usr/lib/systemd/systemd-udevd --daemon || exit 1
    udevadm trigger --action=add --type=subsystems
    udevadm trigger --action=add --type=devices
    udevadm settle --timeout=300 || exit 1
    now; told systemd-udevd $((NOW - start))
    udevadm control --exit || exit 1
}

# $1: its name in the output; then udevd's own options.
udevd() {
    local who=$1 line settled=; shift
    forget
    now; local start=$NOW
    chroot "$NODE" /usr/bin/udevd "$@" 2>/run/bench/says &
    local process=$!
    while read -r line; do
        case $line in
        *settled:*) now; settled=$((NOW - start)); break ;;
        esac
    done </run/bench/says
    [ -n "$settled" ] || exit 1
    told "$who" "$settled"
    kill "$process"; wait "$process"
}

set -e
mkdir -p "$NODE" /usr/lib/modules /run/bench
mkfifo /run/bench/says
mount -t squashfs -o ro /dev/vdb "$NODE"
for place in dev proc sys run; do mount --bind "/$place" "$NODE/$place"; done
# The same modules, and the same of them loaded: the first round is not counted.
mount --bind "$NODE/usr/lib/modules" /usr/lib/modules
cp -r /usr/lib/udev/rules.d /run/bench/rules
systemctl stop systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udevd.service
set +e
for ((round = 0; round <= ROUNDS; round++)); do
    systemd_udevd
    udevd udevd
    udevd udevd-with-rules --rules /run/bench/rules
done
echo "coldplug: done"
exit 0
