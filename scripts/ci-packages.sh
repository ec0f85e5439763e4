# Debian packages for tests that continuous integration leaves out where they cannot be had. To be sourced.
# TESTS names the tests.

# Says why the tests are left out, which is no failure, and ends the script.
leave_out() {
    echo "left out: $TESTS: $1"
    exit 0
}

# Installs packages, as far as they are not there.
install_or_leave_out() {
    local package missing=() as_root=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    command -v apt-get >/dev/null 2>&1 || leave_out "these are not installed, and there is no apt: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || leave_out "these are not installed, and may not be: ${missing[*]}"
        as_root=(sudo -n)
    fi
    echo "installing ${missing[*]}"
    timeout 300 "${as_root[@]}" apt-get update -qq || leave_out "apt reaches no packages"
    local install=(apt-get install -y -qq --no-install-recommends)
    timeout 300 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" "${missing[@]}" ||
        leave_out "apt does not install ${missing[*]}"
}
