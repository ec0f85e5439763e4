# Functions of the scripts that start servers from published jars; they read this file.

need_java() { # installs a JDK 17 and Maven, or names them
    local program
    for program in java mvn; do
        command -v $program >/dev/null && continue
        if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
            apt-get install -y --no-install-recommends openjdk-17-jdk-headless maven >/dev/null
        else
            echo "$program is missing: install a JDK 17 and Maven" >&2; exit 1
        fi
    done
}

fetch_jars() { # NAME PATTERN POM JARS: fetches what POM names, unless JARS has a file like PATTERN
    compgen -G "$4/$2" >/dev/null && return
    echo "fetching $1 into $4"
    rm -rf "$4.part"
    mvn -q -B -f "$3" dependency:copy-dependencies -DoutputDirectory="$4.part"
    mv "$4.part" "$4"
}
